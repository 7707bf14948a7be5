// 8 bytes with the length of the header, a JSON header, the bytes of the tensors end to end.
#include "framework/io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

namespace bonsai {

static_assert(std::endian::native == std::endian::little, "elements lie in the file as in memory");

namespace {

using nlohmann::json;
using Entry = SafetensorsFile::Entry;
using Entries = std::map<std::string, Entry, std::less<>>;

constexpr const char* kWhere = "safetensors";
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

struct Descriptor {
  int number;
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

std::string system_reason() { return std::generic_category().message(errno); }

// A name fit for a message: control characters escaped, and not a megabyte long.
std::string quoted(std::string_view name) {
  return json(name.substr(0, 200)).dump(-1, ' ', false, json::error_handler_t::replace);
}

const char* word_of(DType dtype) {
  return dtype == DType::f32 ? "F32" : dtype == DType::f64 ? "F64" : "I32";
}

// Bits of an element; 0 for a word that the format does not know.
int bits_of(std::string_view word) {
  static constexpr std::pair<std::string_view, int> kWords[] = {
      {"F64", 64},     {"F32", 32},     {"F16", 16},     {"BF16", 16},   {"I64", 64}, {"I32", 32},
      {"I16", 16},     {"I8", 8},       {"U64", 64},     {"U32", 32},    {"U16", 16}, {"U8", 8},
      {"BOOL", 8},     {"C64", 64},     {"F8_E4M3", 8},  {"F8_E5M2", 8}, {"F4", 4},   {"F8_E8M0", 8},
      {"F6_E2M3", 6},  {"F6_E3M2", 6}};
  const auto* found = std::ranges::find(kWords, word, &std::pair<std::string_view, int>::first);
  return found == std::end(kWords) ? 0 : found->second;
}

}  // namespace

struct SafetensorsFile::Handle {
  std::string path;
  Descriptor file;
  uint64_t bytes = 0;

  explicit Handle(const std::filesystem::path& from)
      // Without O_NONBLOCK, opening a pipe would wait for its writer.
      : path(from.string()), file(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    require(file.number >= 0, "cannot be opened: {}", system_reason());
    struct stat status = {};
    require(::fstat(file.number, &status) == 0, "cannot be examined: {}", system_reason());
    require(S_ISREG(status.st_mode), "is {}", S_ISDIR(status.st_mode) ? "a directory" : "not a regular file");
    bytes = static_cast<uint64_t>(status.st_size);
  }

  template <class... Args>
  void require(bool ok, fmt::format_string<const Args&...> text, const Args&... args) const {
    if (!ok) fail(kWhere, "{}: {}", path, fmt::format(text, args...));
  }

  // pread, not mmap: touching a page of a mapped file that was cut meanwhile would kill the process.
  void read(uint64_t at, void* to, size_t count) const {
    for (size_t done = 0; done < count;) {
      const ssize_t got =
          ::pread(file.number, static_cast<char*>(to) + done, count - done, static_cast<off_t>(at + done));
      if (got < 0 && errno == EINTR) continue;
      require(got >= 0, "cannot be read at byte {}: {}", at + done, system_reason());
      require(got > 0, "ends at byte {}; it was cut while it was being read", at + done);
      done += static_cast<size_t>(got);
    }
  }
};

namespace {

using Handle = SafetensorsFile::Handle;

// Checks the header while it is being parsed, so that no more of it is kept than a good one holds.
class HeaderParser final : public json::json_sax_t {
 public:
  HeaderParser(const Handle& file, uint64_t data, std::map<std::string, std::string>& metadata, Entries& entries)
      : file_(file), data_(data), metadata_(metadata), entries_(entries) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(int64_t x) override { return unexpected(fmt::format("{}", x)); }
  bool number_float(double, const std::string& text) override { return unexpected(text.substr(0, 40)); }
  bool binary(json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(uint64_t x) override {
    if (depth_ != 3) return unexpected(fmt::format("{}", x));
    auto& numbers = *list();
    numbers.push_back(x);
    require(field_ != "shape" || numbers.size() <= kMaxRank, "has more than {} axes", kMaxRank);
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata()) return metadata_.emplace(field_, std::move(text)).second;
    if (depth_ != 2 || field_ != "dtype") return unexpected("a string");
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
      file_.require(first, "the name {} stands twice in its header", quoted(key));
      name_ = std::move(key);
      dtype_.reset(), shape_.reset(), offsets_.reset();
      return true;
    }
    field_ = std::move(key);
    const bool again = in_metadata() ? metadata_.contains(field_)
                       : field_ == "dtype" ? dtype_.has_value() : list().has_value();
    require(!again, "has {} twice", quoted(field_));
    require(in_metadata() || field_ == "dtype" || field_ == "shape" || field_ == "data_offsets",
            "has an unknown key {}", quoted(field_));
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
    file_.require(false, "its header is not valid JSON (byte {} of it)", position);
    return false;
  }

 private:
  bool in_metadata() const { return name_ == kMetadata; }
  std::optional<std::vector<uint64_t>>& list() { return field_ == "shape" ? shape_ : offsets_; }

  template <class... Args>
  void require(bool ok, fmt::format_string<const Args&...> text, const Args&... args) const {
    if (ok) return;
    const std::string what = in_metadata() ? kMetadata : "tensor " + quoted(name_);
    file_.require(false, "{} {}", what, fmt::format(text, args...));
  }

  bool unexpected(std::string_view found) const {
    require(depth_ != 1, "must be an object, not {}", found);
    require(!in_metadata(), "must hold text under {}, not {}", quoted(field_), found);
    require(field_ != "dtype", "must have text as its dtype, not {}", found);
    require(false, "must have a list of integers from 0 on as its {}, not {}", field_, found);
    return false;
  }

  Entry checked_entry() const {
    require(dtype_.has_value(), "has no dtype");
    require(shape_.has_value(), "has no shape");
    require(offsets_.has_value(), "has no data_offsets");
    require(offsets_->size() == 2, "must have two data_offsets, not {}", offsets_->size());
    const uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    const int bits = bits_of(*dtype_);
    require(bits > 0, "has an unknown dtype {}", quoted(*dtype_));

    // Sizes of 0 are left out: Shape::elements multiplies the others too, and must not overflow.
    int64_t product = bits;
    bool fits = true, none = false;
    for (const uint64_t size : *shape_) {
      none |= size == 0;
      fits &= size == 0 || !__builtin_mul_overflow(product, size, &product);
    }
    require(fits, "has more elements than can be counted: {}({})", *dtype_, fmt::join(*shape_, ","));
    Entry entry{*dtype_, {}, begin, end};
    for (const uint64_t size : *shape_) entry.shape.dim[entry.shape.rank++] = static_cast<int64_t>(size);

    require(begin <= end, "has data_offsets that run backwards, from {} to {}", begin, end);
    const uint64_t needed = none ? 0 : static_cast<uint64_t>(product);
    require(needed % 8 == 0 && needed / 8 == end - begin, "is {}{}, which does not fill its {} bytes",
            entry.dtype, entry.shape, end - begin);
    require(end <= file_.bytes - data_, "ends at byte {} of the data, but the file holds only {}; it may be cut",
            end, file_.bytes - data_);
    entry.begin += data_, entry.end += data_;
    return entry;
  }

  const Handle& file_;
  const uint64_t data_;  // where the tensors' bytes begin in the file
  std::map<std::string, std::string>& metadata_;
  Entries& entries_;
  int depth_ = 0;  // 1 among the names, 2 in an entry or the metadata, 3 in a list
  bool metadata_seen_ = false;
  std::string name_, field_;
  std::optional<std::string> dtype_;
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

std::string read_header(const Handle& file) {
  file.require(file.bytes >= kLengthBytes, "has {} bytes, too few for a safetensors file", file.bytes);
  uint64_t length = 0;
  file.read(0, &length, kLengthBytes);
  file.require(length <= file.bytes - kLengthBytes,
               "claims a header of {} bytes but has only {} bytes; it is cut or no safetensors file", length,
               file.bytes);
  file.require(length <= kLargestHeader, "has a header of {} bytes; the format allows {}", length, kLargestHeader);
  std::string header(length, '\0');
  file.read(kLengthBytes, header.data(), length);
  // The JSON parser takes a byte of 0 for the end of its text and skips any white space.
  file.require(header.starts_with('{') && header.find('\0') == std::string::npos &&
                   header[header.find_last_not_of(' ')] == '}',
               "its header is not a JSON object padded with spaces");
  return header;
}

// Every byte of the data belongs to exactly one tensor: the format promises no overlap and no hole.
void check_layout(const Handle& file, uint64_t data, const Entries& entries) {
  std::vector<const Entries::value_type*> order;
  for (const auto& named : entries) order.push_back(&named);
  std::ranges::sort(order, {}, [](const auto* e) { return std::pair(e->second.begin, e->second.end); });
  uint64_t expected = data;
  for (const auto* named : order) {
    const Entry& entry = named->second;
    file.require(entry.begin >= expected, "tensor {} overlaps another one at byte {} of the data",
                 quoted(named->first), entry.begin - data);
    file.require(entry.begin == expected, "no tensor holds the {} bytes of data before tensor {}",
                 entry.begin - expected, quoted(named->first));
    expected = entry.end;
  }
  file.require(expected == file.bytes, "no tensor holds the last {} bytes", file.bytes - expected);
}

struct Half {
  uint16_t bits;
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3FFu;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * 0x1p-24f * static_cast<float>(fraction);
    const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
  }
};
struct BFloat {
  uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// Elements of type From, taken through `convert(element, position)` in pieces that stay in the cache.
template <class From, class To, class Convert>
void read_as(const Handle& file, const Entry& entry, std::span<To> out, Convert convert) {
  std::array<From, 4096> part;
  for (size_t done = 0; done < out.size(); done += part.size()) {
    const size_t n = std::min(part.size(), out.size() - done);
    file.read(entry.begin + done * sizeof(From), part.data(), n * sizeof(From));
    for (size_t i = 0; i < n; ++i) out[done + i] = convert(part[i], done + i);
  }
}

template <class To>
void read_floating(const Handle& file, const Entry& entry, std::span<To> out) {
  const auto widened = [](auto x, size_t) { return static_cast<To>(static_cast<float>(x)); };
  if (entry.dtype == "F16") return read_as<Half>(file, entry, out, widened);
  if (entry.dtype == "BF16") return read_as<BFloat>(file, entry, out, widened);
  const auto converted = [](auto x, size_t) { return static_cast<To>(x); };
  if (entry.dtype == "F32") return read_as<float>(file, entry, out, converted);
  return read_as<double>(file, entry, out, converted);
}

void read_i64(const Handle& file, std::string_view name, const Entry& entry, std::span<int32_t> out) {
  read_as<int64_t>(file, entry, out, [&](int64_t x, size_t i) {
    const auto narrow = static_cast<int32_t>(x);
    if (narrow != x)
      fail(kWhere, "{}: tensor {} holds {} at position {}, which is no i32", file.path, quoted(name), x, i);
    return narrow;
  });
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(std::make_shared<Handle>(path)) {
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
  file_->require(found != entries_.end(), "has no tensor {}", quoted(name));
  return found->second;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const std::string& word = dtype(name);
  return read(name, word == "F64" ? DType::f64 : word.starts_with('I') ? DType::i32 : DType::f32);
}

Tensor SafetensorsFile::read(std::string_view name, DType as) const {
  const Entry& from = entry(name);
  const bool integer = from.dtype == "I32" || from.dtype == "I64";
  const bool floating = from.dtype == "F32" || from.dtype == "F64" || from.dtype == "F16" || from.dtype == "BF16";
  file_->require(integer || floating, "tensor {} is {}, which Bonsai does not read", quoted(name), from.dtype);
  file_->require(floating == is_floating(as), "tensor {} is {} and cannot become {}", quoted(name), from.dtype,
                 name_of(as));
  Tensor out = empty(from.shape, as);
  if (from.dtype == word_of(as))
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

// A file that stands at its path whole or not at all.
class Replacement {
 public:
  explicit Replacement(const std::filesystem::path& path)
      : target_(resolved(path)), part_(fmt::format("{}.tmp-{}", target_.string(), ::getpid())),
        folder_(::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
        file_((require(folder_.number >= 0, "cannot open its folder"),
               ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666))) {
    require(file_.number >= 0, "cannot be written");
  }
  ~Replacement() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(const void* from, size_t count) {
    for (size_t done = 0; done < count;) {
      const ssize_t put = ::write(file_.number, static_cast<const char*>(from) + done, count - done);
      if (put < 0 && errno == EINTR) continue;
      require(put > 0, "cannot be written");
      done += static_cast<size_t>(put);
    }
  }

  void commit() {
    require(::fsync(file_.number) == 0, "cannot be written");
    require(::close(std::exchange(file_.number, -1)) == 0, "cannot be written");
    require(::rename(part_.c_str(), target_.c_str()) == 0, "cannot be replaced");
    part_.clear();
    // Some file systems cannot synchronise a folder and say so by EINVAL.
    require(::fsync(folder_.number) == 0 || errno == EINVAL, "is written, but may be lost in a power cut");
  }

 private:
  // A link stays, and the file it leads to is replaced. A device must not be: /dev/null would be gone.
  static std::filesystem::path resolved(const std::filesystem::path& path) {
    std::error_code none;
    const auto status = std::filesystem::status(path, none);
    if (!std::filesystem::exists(status)) return path;
    check(std::filesystem::is_regular_file(status), kWhere, "{}: cannot be written: it is {}", path.string(),
          std::filesystem::is_directory(status) ? "a directory" : "not a regular file");
    return std::filesystem::canonical(path);
  }
  static std::filesystem::path folder_of(const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : ".";
  }
  void require(bool ok, const char* what) const {
    if (!ok) fail(kWhere, "{}: {}: {}", target_.string(), what, system_reason());
  }

  std::filesystem::path target_;
  std::string part_;  // the file before it is whole; empty once it is in place
  Descriptor folder_, file_;
};

}  // namespace
}  // namespace bonsai
