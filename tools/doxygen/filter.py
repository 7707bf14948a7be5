#!/usr/bin/env python3
"""Prints a header as Doxygen reads it: comments in the style of this project become documentation.

- A `//` comment above a declaration documents it, and so does one behind it. The comment at the head of a
  file documents the file, and a class in it that has no comment. A comment that begins with `----` documents
  nothing.
- `v("key", field, "help", ...)` in the visit() of a struct documents the field.
- Nothing need be said of constructors, destructors, operators, overrides, visit(), values of an enum, fields,
  of what Doxygen shows whole (constants, aliases, functions of one line), and of what follows a documented
  declaration without an empty line.

Lines keep their numbers. usage: filter.py HEADER
"""

import re
import sys


def comment_at(line):
    """The index of the `//` of a line, which no string holds; -1 if there is none."""
    quote = ""
    i = 0
    while i < len(line):
        c = line[i]
        if quote:
            if c == "\\":
                i += 1
            elif c == quote:
                quote = ""
        elif c == '"' or (c == "'" and not (i and line[i - 1].isalnum())):
            quote = c
        elif line.startswith("//", i):
            return i
        i += 1
    return -1


def escaped(comment):
    """What Doxygen shows as it stands. What is indented is code."""
    if comment.startswith("  "):
        return "    " + comment
    comment = re.sub(r"[\\@#]", r"\\\g<0>", comment).replace("*/", "* /")
    return comment.replace("<", "&lt;").replace(">", "&gt;")


class Scopes:
    """Follows braces, and says where a declaration begins that a comment may document."""

    def __init__(self):
        self.open = []  # "namespace", "struct", "class", "enum", "union" or "" (a body, an initializer)
        self.names = []
        self.parens = 0
        self.statement = ""

    def documentable(self):
        return "" not in self.open and self.parens == 0

    def at_start(self):
        return self.documentable() and not self.statement.strip()

    def read(self, code):
        code = re.sub(r'"(\\.|[^"\\])*"|(?<!\w)\'(\\.|[^\'\\])\'', "0", code)
        for i, c in enumerate(code):
            if c == "(":
                self.parens += 1
            elif c == ")":
                self.parens -= 1
            if c == "{":
                head = self.statement if self.documentable() else "="
                while "<" in head and head != (shorter := re.sub(r"<[^<>]*>", "", head)):
                    head = shorter
                kinds = re.findall(r"\b(namespace|struct|class|enum|union)\b(?:\s+class)?\s*(\w*)", head)
                kind, name = kinds[-1] if kinds and "(" not in head and "=" not in head else ("", "")
                self.open.append(kind)
                self.names.append(name)
                if kind:
                    self.statement = ""
            elif c == "}" and self.open:
                kind = self.open.pop()
                self.names.pop()
                rest = code[i + 1 :].strip()
                ends = kind == "namespace" or (kind == "" and rest[:1] not in tuple(";,){"))
                if self.documentable() and ends:
                    self.statement = ""
                elif kind:
                    self.statement = "}"  # up to the ;
            elif c == ";" and self.documentable():
                self.statement = ""
            elif c == ":" and re.fullmatch(r"\s*(public|private|protected)", self.statement):
                self.statement = ""
            elif "" not in self.open:
                self.statement += c
        self.statement += " "


def helps_of(text):
    """{(struct, field): help} of the visit() functions."""
    found = {}
    struct = ""
    pattern = re.compile(
        r'\bstruct (\w+)[^;{]*\{|\bv(?:\.\w+)?\(\s*"\w+",\s*(?:\w+\.)?(\w+),\s*((?:"(?:\\.|[^"\\])*"\s*)+)')
    for match in pattern.finditer(text):
        if match.group(1):
            struct = match.group(1)
        else:
            found[struct, match.group(2)] = "".join(re.findall(r'"((?:\\.|[^"\\])*)"', match.group(3)))
    return found


NOTHING_TO_SAY = "&zwj;"  # documented, in Doxygen's eyes
TEMPLATE = re.compile(r"\s*template <.*>\s*$")
CLASS = re.compile(r"\s*(template <.*>\s*)?(struct|class)\s+\w+[^;]*$")
KNOWN = re.compile(
    r"~\w+\(|\boperator\b|\boverride\b|\bvoid visit(_keys)?\(|= (default|delete);"
    r"|\{ .*; \}\s*$|\bconstexpr [\w:<>* ]+ [\w<>]+(\[\])? =|\b(using|enum) ")
MACRO = re.compile(r"[A-Z_]+\(\w*\)\s*$")
DECLARATORS = re.compile(r"(\s*[^=(]*?[\w>]) +([*&]*\w+(?:\[\w+\])*(?: = .*|\{.*\})?)$")


def needs_no_words(code, struct, kind):
    if kind == "enum" or KNOWN.search(code) or (struct and re.match(r"\s*(explicit )?%s\(" % struct, code)):
        return True
    return kind in ("struct", "class") and not re.match(r"[^={]*\(", code)


def declarations(code):
    """`int a = 0, b;` as the two declarations that Doxygen can document."""
    parts, depth = [""], 0
    for c in code.rstrip().removesuffix(";"):
        depth += (c in "({[<") - (c in ")}]>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    first = DECLARATORS.match(parts[0])
    if not first or len(parts) == 1 or not code.rstrip().endswith(";"):
        return [code]
    return ["%s %s;" % (first.group(1), name.strip()) for name in [first.group(2)] + parts[1:]]


def split(line):
    """The code of a line, and the comment behind it."""
    at = comment_at(line)
    return (line, "") if at < 0 else (line[:at], escaped(line[at + 2 :].strip()))


def help_of(helps, struct, code):
    for name in re.findall(r"(\w+)\s*(?:=[^;]*|\{[^;]*\})?[;,]", code):
        if (struct, name) in helps:
            return escaped(helps[struct, name])
    return ""


class Filter:
    """Takes the lines below `#pragma once` one by one and collects those that Doxygen reads."""

    def __init__(self, helps, file_comment):
        self.helps = helps
        self.file_comment = file_comment
        self.scopes = Scopes()
        self.out = []
        self.pending = []  # a comment whose declaration may follow
        self.covered = False  # no empty line since a documented declaration
        self.macro = False

    def take(self, line, following):
        stripped = line.strip()
        start = self.scopes.at_start()
        if stripped.startswith("//") and start:
            self.pending.append(line)
            return
        code, comment = split(line)
        directive = stripped.startswith("#") or self.macro
        declares = stripped.startswith("#define") or (start and stripped and stripped[0] not in "#}")
        declares = declares and not self.macro
        declares = declares and not re.match(r"namespace|public:|private:|protected:", stripped)
        above = ""
        if declares and self.pending and not self.pending[0].strip().startswith("// ----"):
            above = "\n".join(escaped(p.strip()[3:]) for p in self.pending)
            if len(declarations(code)) > 1:
                comment = (above.replace("\n", " ") + " " + comment).strip()
                above = ""
        self.out.extend(["/// " + o for o in above.split("\n")] if above else self.pending)
        self.pending = []
        if directive:
            self.macro = stripped.endswith("\\")
            self.out.append(line)
        elif declares:
            self.declare(line, code, comment, above, following)
        else:
            self.scopes.read(code)
            self.covered &= not start or bool(stripped) and stripped[0] != "}"
            self.out.append(line)

    def declare(self, line, code, comment, above, following):
        whole = code
        if TEMPLATE.match(code):  # what it declares is in the next line
            below = split(following)
            whole += below[0]
            comment = comment or below[1]
        if MACRO.match(code):  # declares several names
            self.out.append("/**@{*/ %s /**@}*/" % code if above else "")
            return
        if "fmt::formatter<" in whole:  # no name of this project
            self.out.append("")
            return
        struct, kind = (self.scopes.names[-1], self.scopes.open[-1]) if self.scopes.open else ("", "")
        self.scopes.read(code)
        opens = CLASS.match(whole) or re.match(r"\s*enum\b[^;]*$", code)
        complete = self.scopes.at_start() and not opens
        if complete:
            comment = "; ".join(filter(None, [comment, help_of(self.helps, struct, code)]))
        if not above and not comment:
            if CLASS.match(whole):
                comment = self.file_comment
            elif self.covered or needs_no_words(whole, struct, kind):
                comment = NOTHING_TO_SAY
        self.covered = bool(above or comment) and not opens
        if not comment or (above and not complete):
            self.out.append(line)
            return
        code = re.sub(r"^(\s*enum .*\}) (\w)", r"\1 /** %s */ \2" % NOTHING_TO_SAY, code)
        self.out.append(" ".join("/** %s */ %s" % (comment, c) for c in declarations(code)))


def filtered(text):
    lines = text.split("\n")
    if "#pragma once" not in lines:  # a list for macros
        return text
    head = lines.index("#pragma once")
    comment = [escaped(line[3:]) for line in lines[:head]]
    first = comment[: comment.index("")] if "" in comment else comment
    body = Filter(helps_of(text), " ".join(first))
    for line, following in zip(lines[head + 2 :], lines[head + 3 :] + [""]):
        body.take(line, following)
    # @file takes the line of the empty one below #pragma once.
    above = ["/// @file"] + ["/// " + c for c in comment] + [lines[head]]
    return "\n".join(above + body.out + body.pending)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(filtered(header.read()))
