// bonsai generate CHECKPOINT: generates text with a trained model.
#include <fmt/format.h>

#include "bonsai/framework/config/yaml.h"
#include "bonsai/tools/command.h"

namespace bonsai {

void add_generate(CLI::App& program) {
  struct Arguments {
    std::string checkpoint, prompt;
    int64_t max_tokens = 200;
    GenerateOptions options;
    Device device;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* command = program.add_subcommand("generate", "generate text with a trained model");
  command->add_option("checkpoint", a->checkpoint, "run folder or checkpoint")
      ->required()
      ->check(not_empty());
  command->add_option("--prompt", a->prompt,
                      "text to continue, a line break by default; or the source to answer");
  command->add_option("--max-tokens", a->max_tokens, "maximum number of new tokens")
      ->transform(whole_number(0));
  command
      ->add_option("--temperature", a->options.temperature,
                   "temperature of sampling; 0 always takes the most likely token")
      ->check(number(between(0, 1e30)));
  command->add_option("--top-k", a->options.top_k, "keep only the k most likely tokens; 0 keeps all")
      ->transform(whole_number(0));
  command
      ->add_option("--top-p", a->options.top_p,
                   "keep the smallest set of most likely tokens with this total probability")
      ->check(number(between(1e-9, 1)));
  command
      ->add_option("--min-p", a->options.min_p,
                   "keep tokens with at least this fraction of the highest probability")
      ->check(number(between(0, 1)));
  command->add_option("--seed", a->options.seed, "seed of sampling")->transform(whole_number(0));
  add_device(*command, a->device);
  command->callback([a] {
    LoadedModel model(a->checkpoint, a->device);
    const Tokenizer& tokenizer = *model.checkpoint.tokenizer();
    const bool empty = a->prompt.empty();
    const RunConfig& config = model.checkpoint.config();
    if (empty && config.data->has_source()) throw ConfigError("--prompt is empty; give the source to answer");
    Batch prompt;
    try {
      prompt = prompt_of(model, "--prompt", empty ? "\n" : a->prompt);
    } catch (const ConfigError&) {
      if (!empty) throw;
      throw ConfigError(
          "--prompt is empty and the vocabulary has no line break to begin with; give a prompt");
    }
    auto text = written_by(model, prompt, a->max_tokens, a->options);
    const auto start = static_cast<size_t>(prompt.inputs.size(1));
    const int32_t end = config.data->end_token(tokenizer);
    if (text.size() > start && text.back() == end) text.pop_back();
    const size_t begin = empty || config.data->has_source() ? start : 0;
    fmt::print("{}\n", tokenizer.decode(std::span(text).subspan(begin)));
  });
}

}  // namespace bonsai
