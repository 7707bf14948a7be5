// Text that comes from a file or a user, made fit for a message: it cannot forge a line, drive the terminal or fill it.
#pragma once

#include <string>
#include <string_view>

namespace bonsai {

// Where `text` stops being printable UTF-8; npos if nowhere. Tabs and line ends are printable here.
size_t find_bad_byte(std::string_view text);

// `text` with control characters and marks that change the direction of writing escaped as \n or \u001b, and bytes that
// are not UTF-8 as \xff. What follows the first `most` bytes is replaced by "...".
std::string escaped(std::string_view text, size_t most = 200);

// The same between double quotes, with \" and \\ escaped.
std::string in_quotes(std::string_view text, size_t most = 200);

}  // namespace bonsai
