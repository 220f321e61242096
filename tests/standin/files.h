// Files, folders and programs, as the stand-in of NVRTC needs them.
#pragma once
#include <string>
#include <vector>

// 32 digits that hang on every byte of a text.
std::string digest(const std::string &text);

// What tells one kind of processor from another.
std::string processor_words();

// Where objects are kept: `TUNEBOX_STANDIN_CACHE`, or a folder of this user's among the temporary ones; empty if there
// is none that is this user's own.
std::string cache_folder();

// A unique name beside another one.
std::string fresh_name(const std::string &beside);

bool make_folder(const std::string &path);
// All of a file, or nothing if it cannot be read.
std::string read_file(const std::string &path);
// Writes beside the place and renames, so that no reader sees half of it.
bool write_file(const std::string &path, const std::string &text);
bool rename_file(const std::string &from, const std::string &to);
void remove_file(const std::string &path);

// Runs a program to its end; both of its outputs go into a file. 127 if it cannot be run.
int run_program(const std::vector<std::string> &words, const std::string &said);
