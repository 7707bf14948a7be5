// The format: 8 bytes with the length of the header, the header in JSON, the contiguous bytes of the tensors.
#include "bonsai/framework/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "bonsai/framework/core/quote.h"
#include "bonsai/framework/io/file.h"

namespace bonsai {

static_assert(std::endian::native == std::endian::little, "elements lie in the file as in memory");

namespace {

using nlohmann::json;
using Entry = SafetensorsFile::Entry;
using Metadata = std::map<std::string, std::string>;
using Entries = std::map<std::string, Entry, std::less<>>;

constexpr const char* kWhere = "safetensors";
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the format
constexpr const char* kMetadata = "__metadata__";

const char* word_of(DType dtype) {
  return dtype == DType::f32 ? "F32" : dtype == DType::f64 ? "F64" : "I32";
}

// Bits per element; 0 for a dtype that the format does not define.
int bits_of(std::string_view word) {
  static constexpr std::pair<std::string_view, int> kWords[] = {
      {"F64", 64},    {"F32", 32},    {"F16", 16},    {"BF16", 16},       {"C64", 64},
      {"I64", 64},    {"I32", 32},    {"I16", 16},    {"I8", 8},          {"BOOL", 8},
      {"U64", 64},    {"U32", 32},    {"U16", 16},    {"U8", 8},          {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8},
      {"F8_E5M2", 8}, {"F8_E5M2FNUZ", 8}};
  const auto* found = std::ranges::find(kWords, word, &std::pair<std::string_view, int>::first);
  return found == std::end(kWords) ? 0 : found->second;
}

template <class... Args>
void check_file(bool ok, const InputFile& file, fmt::format_string<const Args&...> text,
                const Args&... args) {
  if (!ok) fail(kWhere, "{}: {}", file.path(), fmt::format(text, args...));
}

// Checks the header while parsing it, so that an invalid header does not use more memory than a valid one.
class HeaderParser final : public json::json_sax_t {
 public:
  HeaderParser(const InputFile& file, uint64_t data, Metadata& metadata, Entries& entries)
      : file_(file), data_(data), metadata_(metadata), entries_(entries) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(int64_t x) override { return unexpected(fmt::format("{}", x)); }
  bool number_float(double, const std::string& text) override { return unexpected(text.substr(0, 40)); }
  bool binary(json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(uint64_t x) override {
    if (depth_ != 3) return unexpected(fmt::format("{}", x));
    list()->push_back(x);
    require(!shape_ || shape_->size() <= kMaxRank, "has more than {} axes", kMaxRank);
    require(!offsets_ || offsets_->size() <= 2, "has more than two data_offsets");
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ != 2 || (!in_metadata() && field_ != "dtype")) return unexpected("a string");
    if (in_metadata())
      metadata_[field_] = std::move(text);
    else
      dtype_ = std::move(text);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ >= 2) return unexpected("an object");
    ++depth_;
    return true;
  }

  bool key(std::string& key) override {
    if (depth_ == 1) {
      const bool first = key == kMetadata ? !std::exchange(metadata_seen_, true) : !entries_.contains(key);
      check_file(first, file_, "the name {} stands twice in its header", in_quotes(key));
      name_ = std::move(key);
      dtype_.reset(), shape_.reset(), offsets_.reset();
      return true;
    }
    field_ = std::move(key);
    const bool again = in_metadata() ? metadata_.contains(field_)
                       : field_ == "dtype" ? dtype_.has_value() : list().has_value();
    require(!again, "has {} twice", in_quotes(field_));
    require(in_metadata() || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets",
            "has an unknown key {}", in_quotes(field_));
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && !in_metadata()) entries_.emplace(name_, checked_entry());
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata() || field_ == "dtype") return unexpected("a list");
    list().emplace();
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    fail(kWhere, "{}: its header is not valid JSON (byte {} of it)", file_.path(), position);
  }

 private:
  bool in_metadata() const { return name_ == kMetadata; }
  std::optional<std::vector<uint64_t>>& list() { return field_ == "shape" ? shape_ : offsets_; }

  template <class... Args>
  void require(bool ok, fmt::format_string<const Args&...> text, const Args&... args) const {
    if (ok) return;
    const std::string what = in_metadata() ? kMetadata : "tensor " + in_quotes(name_);
    check_file(false, file_, "{} {}", what, fmt::format(text, args...));
  }

  bool unexpected(std::string_view found) const {
    require(depth_ != 1, "must be an object, not {}", found);
    require(!in_metadata(), "must hold text under {}, not {}", in_quotes(field_), found);
    require(field_ != "dtype", "must have text as its dtype, not {}", found);
    require(false, "must have a list of non-negative integers as its {}, not {}", field_, found);
    return false;
  }

  Entry checked_entry() const {
    require(dtype_.has_value(), "has no dtype");
    require(shape_.has_value(), "has no shape");
    require(offsets_.has_value(), "has no data_offsets");
    require(offsets_->size() == 2, "has only {} data_offsets", offsets_->size());
    const uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    const int bits = bits_of(*dtype_);
    require(bits > 0, "has an unknown dtype {}", in_quotes(*dtype_));

    // Skip sizes of 0: Shape::elements multiplies the other sizes, too, and must not overflow.
    int64_t product = bits;
    bool fits = true, none = false;
    for (const uint64_t size : *shape_) {
      none |= size == 0;
      fits &= size == 0 || !__builtin_mul_overflow(product, size, &product);
    }
    require(fits, "has more elements than can be counted: {}({})", *dtype_,
            fmt::format("{}", fmt::join(*shape_, ",")));
    Entry entry{*dtype_, {}, begin, end};
    for (const uint64_t size : *shape_) entry.shape.dim[entry.shape.rank++] = static_cast<int64_t>(size);

    require(begin <= end, "has data_offsets that run backwards, from {} to {}", begin, end);
    const uint64_t needed = none ? 0 : static_cast<uint64_t>(product);
    require(needed % 8 == 0 && needed / 8 == end - begin, "is {}{}, which does not fill its {} bytes",
            entry.dtype, entry.shape, end - begin);
    require(end <= file_.bytes() - data_,
            "ends at byte {} of the data, but the file holds only {}; it may be cut", end,
            file_.bytes() - data_);
    entry.begin += data_, entry.end += data_;
    return entry;
  }

  const InputFile& file_;
  const uint64_t data_;  // offset in the file of the tensors' bytes
  Metadata& metadata_;
  Entries& entries_;
  int depth_ = 0;  // 1 among the names, 2 in an entry or the metadata, 3 in a list
  bool metadata_seen_ = false;
  std::string name_, field_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

std::string read_header(const InputFile& file) {
  const uint64_t bytes = file.bytes();
  check_file(bytes >= kLengthBytes, file, "has {} bytes, too few for a safetensors file", bytes);
  uint64_t length = 0;
  file.read(0, &length, kLengthBytes);
  check_file(length <= bytes - kLengthBytes, file,
             "claims a header of {} bytes but has only {} bytes; it is cut or no safetensors file", length,
             bytes);
  check_file(length <= kLargestHeader, file, "has a header of {} bytes; the format allows {}", length,
             kLargestHeader);
  std::string header(length, '\0');
  file.read(kLengthBytes, header.data(), length);
  // The JSON parser treats a zero byte as the end of the text, and skips white space.
  check_file(header.starts_with('{') && header.find('\0') == std::string::npos &&
                 header[header.find_last_not_of(' ')] == '}',
             file, "its header is not a JSON object padded with spaces");
  return header;
}

// Checks that every byte of the data belongs to exactly one tensor: the format allows no overlaps and no
// holes.
void check_layout(const InputFile& file, uint64_t data, const Entries& entries) {
  std::vector<const Entries::value_type*> order;
  for (const auto& named : entries) order.push_back(&named);
  std::ranges::sort(order, {}, [](const auto* e) { return std::pair(e->second.begin, e->second.end); });
  uint64_t expected = data;
  for (const auto* named : order) {
    const Entry& entry = named->second;
    check_file(entry.begin >= expected, file, "tensor {} overlaps another one at byte {} of the data",
               in_quotes(named->first), entry.begin - data);
    check_file(entry.begin == expected, file, "no tensor holds the {} bytes of data before tensor {}",
               entry.begin - expected, in_quotes(named->first));
    expected = entry.end;
  }
  check_file(expected == file.bytes(), file, "no tensor holds the last {} bytes", file.bytes() - expected);
}

struct Half {
  uint16_t bits;
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 0x3FFu;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * 0x1p-24f * static_cast<float>(fraction);
    const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
  }
};
struct BFloat {
  uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// Reads elements of type From and converts each with `convert(element, position)`, in pieces that fit the
// cache.
template <class From, class To, class Convert>
void read_as(const InputFile& file, const Entry& entry, std::span<To> out, Convert convert) {
  std::array<From, 4096> part;
  for (size_t done = 0; done < out.size(); done += part.size()) {
    const size_t n = std::min(part.size(), out.size() - done);
    file.read(entry.begin + done * sizeof(From), part.data(), n * sizeof(From));
    for (size_t i = 0; i < n; ++i) out[done + i] = convert(part[i], done + i);
  }
}

template <class To>
void read_floating(const InputFile& file, const Entry& entry, std::span<To> out) {
  const auto widened = [](auto x, size_t) { return static_cast<To>(static_cast<float>(x)); };
  if (entry.dtype == "F16") return read_as<Half>(file, entry, out, widened);
  if (entry.dtype == "BF16") return read_as<BFloat>(file, entry, out, widened);
  const auto converted = [](auto x, size_t) { return static_cast<To>(x); };
  if (entry.dtype == "F32") return read_as<float>(file, entry, out, converted);
  return read_as<double>(file, entry, out, converted);
}

void read_i64(const InputFile& file, std::string_view name, const Entry& entry, std::span<int32_t> out) {
  read_as<int64_t>(file, entry, out, [&](int64_t x, size_t i) {
    const auto narrow = static_cast<int32_t>(x);
    if (narrow != x)
      fail(kWhere, "{}: tensor {} has {} at position {}, which does not fit an i32", file.path(),
           in_quotes(name), x, i);
    return narrow;
  });
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(std::make_shared<InputFile>(path)) {
  const std::string header = read_header(*file_);
  const uint64_t data = kLengthBytes + header.size();
  HeaderParser parser(*file_, data, metadata_, entries_);
  json::sax_parse(header, &parser);
  check_layout(*file_, data, entries_);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : entries_) all.push_back(name);
  return all;
}

const Entry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  check_file(found != entries_.end(), *file_, "has no tensor {}", in_quotes(name));
  return found->second;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const std::string& word = dtype(name);
  return read(name, word == "F64" ? DType::f64 : word.starts_with('I') ? DType::i32 : DType::f32);
}

Tensor SafetensorsFile::read(std::string_view name, DType as) const {
  const Entry& from = entry(name);
  const std::string& word = from.dtype;
  const bool integer = word == "I32" || word == "I64";
  const bool floating = word == "F32" || word == "F64" || word == "F16" || word == "BF16";
  check_file(integer || floating, *file_, "tensor {} is {}, which Bonsai does not read", in_quotes(name),
             word);
  check_file(floating == is_floating(as), *file_, "tensor {} is {} and cannot become {}", in_quotes(name),
             word, name_of(as));
  Tensor out = empty(from.shape, as);
  if (word == word_of(as))
    file_->read(from.begin, out.mutable_data(), from.end - from.begin);
  else if (as == DType::f32)
    read_floating(*file_, from, out.mutable_span<float>());
  else if (as == DType::f64)
    read_floating(*file_, from, out.mutable_span<double>());
  else
    read_i64(*file_, name, from, out.mutable_span<int32_t>());
  return out;
}

namespace {

using Named = std::pair<std::string, Tensor>;

size_t bytes_of(const Tensor& x) { return static_cast<size_t>(x.elements()) * size_of(x.dtype()); }

std::string header_of(const std::string& path, const std::vector<const Named*>& tensors,
                      const Metadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t at = 0;
  for (const Named* named : tensors) {
    const auto& [name, x] = *named;
    check(x && name != kMetadata && !header.contains(name), kWhere,
          "{}: tensor {} cannot be written: {}", path, in_quotes(name),
          !x ? "it is undefined" : name == kMetadata ? "its name is taken" : "its name is given twice");
    header[name] = {{"dtype", word_of(x.dtype())},
                    {"shape", std::span(x.shape().dim, static_cast<size_t>(x.rank()))},
                    {"data_offsets", {at, at + bytes_of(x)}}};
    at += bytes_of(x);
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    fail(kWhere, "{}: a tensor's name or a metadata string is not valid UTF-8", path);
  }
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  check(text.size() <= kLargestHeader, kWhere, "{}: a header of {} bytes is too long; the format allows {}",
        path, text.size(), kLargestHeader);
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<Named>& tensors,
                       const Metadata& metadata) {
  std::vector<const Named*> order;
  for (const Named& named : tensors) order.push_back(&named);
  std::ranges::stable_sort(order, std::greater(), [](const Named* x) { return size_of(x->second.dtype()); });
  const std::string header = header_of(path.string(), order, metadata);
  const uint64_t length = header.size();
  ReplacementFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header.data(), header.size());
  for (const Named* named : order) {
    const Tensor& x = named->second;
    Tensor host = x;
    if (x.device().type != Device::cpu) {
      host = empty(x.shape(), x.dtype());
      pool(x.device()).memory().copy(host.mutable_data(), x.data(), bytes_of(x));
    }
    file.write(host.data(), bytes_of(x));
  }
  file.commit();
}

}  // namespace bonsai
