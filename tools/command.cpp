#include "bonsai/tools/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "bonsai/framework/backend/backend.h"
#include "bonsai/framework/config/print.h"
#include "bonsai/framework/config/yaml.h"
#include "bonsai/framework/core/limits.h"
#include "bonsai/framework/core/parallel.h"
#include "bonsai/trainers/loop.h"
#include "bonsai/layers/model/transformer.h"
#include "bonsai/trainers/progress.h"

namespace bonsai {
namespace {

// Adds an option that may be repeated, with one value each time.
CLI::Option* add_each(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                      const std::string& help) {
  const auto add = [&values](const std::string& value) { values.push_back(value); };
  return command.add_option_function<std::string>(name, add, help)->trigger_on_parse();
}

}  // namespace

void check_memory(const RunConfig& config, Use use) {
  constexpr double kLayerBytes = 16 << 10;  // memory of a layer's objects, without its tensors
  const bool training = use == Use::training;
  // A transformer keeps about sixteen vectors of d_model per token and layer; every model, the logits twice.
  const auto* transformer = config.model.kind.find<TransformerKeys>();
  const double layers = transformer ? static_cast<double>(transformer->n_layers) +
                                          static_cast<double>(transformer->n_encoder_layers)
                                    : 0;
  const double width = transformer ? static_cast<double>(transformer->d_model) : 0;
  const double tokens =
      static_cast<double>(config.trainer.batch_size) * static_cast<double>(config.model.block_size);
  const double kept = 16.0 * width * (training ? layers : 1) +
                      2.0 * static_cast<double>(config.model.vocab_size);
  Parameter matrix("matrix", empty({256, 256}), /*decay=*/true);  // most parameters are matrices
  const auto state = static_cast<double>(state_elements(config.optimizer, {&matrix}));
  const double copies = training ? 2 + state / static_cast<double>(matrix.value.elements()) : 1;
  const double needed = (copies * parameter_count(config.model) + tokens * kept) *
                            (config.trainer.dtype == "f64" ? 8 : 4) +
                        layers * kLayerBytes;
  const auto there = static_cast<double>(memory_limit());
  if (needed > there)
    throw ConfigError(
        fmt::format("the model and a batch of {} x {} tokens need about {:.0f} bytes, but this machine "
                    "has {:.0f} for the program; make one of them smaller",
                    config.trainer.batch_size, config.model.block_size, needed, there));
}

CLI::Validator whole_number(int64_t least) {
  return CLI::Validator(
      [least](std::string& text) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size() || value < least)
          return fmt::format("must be a whole number, {} or more, got '{}'", least, text);
        text = std::to_string(value);  // normalises 010 to 10
        return std::string();
      },
      "");
}

CLI::Validator number(const Range& range) {
  return CLI::Validator(
      [range](std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && range.holds(value);
        return good ? std::string() : fmt::format("must be a number {}, got '{}'", range.text(), text);
      },
      "");
}

CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); },
                        "");
}

CLI::Validator device_name() {
  return CLI::Validator(
      [](std::string& text) {
        constexpr std::string_view kNumbered = "cuda:";
        if (text == "cpu" || text == "cuda") return std::string();
        const std::string index = text.starts_with(kNumbered) ? text.substr(kNumbered.size()) : "";
        const bool number =
            !index.empty() && index.size() <= 3 && index.find_first_not_of("0123456789") == index.npos;
        if (number && std::stoi(index) <= std::numeric_limits<int8_t>::max()) return std::string();
        return fmt::format("must be cpu, cuda or cuda:N with N from 0 to 127, got '{}'", text);
      },
      "");
}

CLI::Option* ConfigArguments::add_to(CLI::App& command) {
  CLI::Option* config = command.add_option("config", path, "YAML file")->required()->check(not_empty());
  add_each(
      command, "--set", settings,
      "set a key: model.n_layers=2; paths are relative to the current folder; may be repeated")
      ->type_name("KEY=VALUE");
  add_each(command, "--unset", removed,
           "ignore a key of the file, so that its default applies; may be repeated")
      ->type_name("KEY");
  command.add_option("--device", device, "cpu, cuda or cuda:N; sets device.type and device.index")
      ->check(device_name());
  command.add_option_function<int64_t>("--threads", [this](const int64_t& n) { threads = n; },
                                       "sets device.threads; 0 chooses one per usable processor")
      ->transform(whole_number(0));
  return config;
}

RunConfig ConfigArguments::load() const {
  constexpr std::string_view kPath = "data.path=";
  if (is_checkpoint_file(path)) throw ConfigError(path + " is a checkpoint, not a config");
  ConfigFile file{std::filesystem::path(path)};
  for (const std::string& key : removed) file.unset(key);
  for (const std::string& setting : settings)
    file.set(setting.starts_with(kPath) && setting.size() > kPath.size()
                 ? std::string(kPath) + std::filesystem::absolute(setting.substr(kPath.size())).string()
                 : setting);
  const size_t colon = device.find(':');
  if (!device.empty()) file.set("device.type=" + device.substr(0, colon));
  if (colon != std::string::npos) file.set("device.index=" + device.substr(colon + 1));
  if (threads >= 0) file.set("device.threads=" + std::to_string(threads));
  for (const std::string& key : file.drop_unused<RunConfig>())
    say(fmt::format("{} of {} is left out: it is no key with these settings\n", key, path));
  RunConfig config = file.load<RunConfig>();
  check_memory(config);
  config.data->resolve(std::filesystem::path(path).parent_path());
  for (const ConfigKey& key : config_keys(config))
    if (const auto* text = std::get_if<std::string>(&key.value);
        text && find_bad_byte(*text) != std::string::npos)
      throw ConfigError(fmt::format(
          "{}: {} is not UTF-8 text, which a checkpoint could not keep; rename the folder or file", path,
          key.path));
  if (config.device.threads > 0) set_threads(static_cast<int>(config.device.threads));
  return config;
}

void prepare_data_or_vocabulary(RunConfig& config) {
  const std::filesystem::path file = config.data->file();
  if (file.empty() || std::filesystem::exists(file)) {
    prepare_data(config);
    return check_memory(config);
  }
  if (config.model.vocab_size == 0) config.model.vocab_size = kStandInVocabulary;
  say(fmt::format("{} is not there: going on with a vocabulary of {}\n", file.string(),
                  config.model.vocab_size));
  check_memory(config);
}

CLI::Option* add_device(CLI::App& command, Device& device) {
  const auto read = [&device](const std::string& text) {
    const size_t colon = text.find(':');
    if (text != "cpu") device.type = Device::cuda;
    if (colon != std::string::npos) device.index = static_cast<int8_t>(std::stoi(text.substr(colon + 1)));
  };
  return command.add_option_function<std::string>("--device", read, "cpu, cuda or cuda:N")
      ->check(device_name());
}

LoadedModel::LoadedModel(const std::string& path, Device device)
    : checkpoint(path),
      root(checkpoint.build((open_device(device), device))),
      model(checkpoint.config().model.make(&root)) {
  checkpoint.load_model(*model);
}

Batch prompt_of(const LoadedModel& model, const std::string& option, const std::string& text) {
  const int64_t most = model.model->block_size();
  try {
    Batch batch = model.checkpoint.config().data->prompt(*model.checkpoint.tokenizer(), text);
    if (!batch.source || batch.source.size(1) <= most) return batch;
    throw ConfigError(
        fmt::format("{} has {} tokens, more than block_size {}", option, batch.source.size(1), most));
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& e) {
    throw ConfigError(fmt::format("{}: {}", option, e.what()));
  }
}

std::vector<int32_t> written_by(LoadedModel& model, const Batch& batch, int64_t count,
                                const GenerateOptions& options) {
  const Task& task = *model.checkpoint.config().data;
  const int32_t end = task.end_token(*model.checkpoint.tokenizer());
  const auto begin = batch.inputs.span<int32_t>();
  count = std::min(count, task.answer_length(batch, model.model->block_size()));
  return generate(
      *model.model, {begin.begin(), begin.end()}, count, options,
      [end](int32_t id) { return id != end; }, source_of(batch));
}

}  // namespace bonsai
