// Quotes text from files and users for messages, so that it cannot forge lines, control the terminal or flood
// it.
#pragma once

#include <string>
#include <string_view>

namespace bonsai {

// Index of the first byte that is neither valid UTF-8 nor printable; npos if there is none. Tabs and line
// ends count as printable.
size_t find_bad_byte(std::string_view text);

// Escapes control characters and bidirectional formatting characters as \n or \u001b, and bytes that are not
// UTF-8 as \xff. Replaces everything after the first `most` bytes with "...".
std::string escaped(std::string_view text, size_t most = 200);

// Like escaped(), but encloses the text in double quotes and also escapes " and \ as \" and \\.
std::string in_quotes(std::string_view text, size_t most = 200);

}  // namespace bonsai
