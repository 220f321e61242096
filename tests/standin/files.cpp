#include "files.h"
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// FNV-1a twice, from two beginnings: names of files, no defence.
std::string digest(const std::string &text) {
    unsigned long long halves[2] = {0xcbf29ce484222325ull, 0x9ae16a3b2f90404full};
    for (unsigned char byte : text) {
        for (auto &half : halves) half = (half ^ byte) * 0x100000001b3ull;
        halves[1] ^= halves[1] >> 29;
    }
    char words[33];
    snprintf(words, sizeof words, "%016llx%016llx", halves[0], halves[1]);
    return words;
}

std::string processor_words() {
    std::string all = read_file("/proc/cpuinfo"), words;
    for (const char *key : {"model name", "flags", "Features", "CPU part"}) {
        size_t at = all.find(key);
        if (at != std::string::npos) words += all.substr(at, all.find('\n', at) - at);
    }
    return words;
}

std::string cache_folder() {
    const char *named = getenv("TUNEBOX_STANDIN_CACHE"), *temporary = getenv("TMPDIR");
    std::string folder = temporary && *temporary ? temporary : "/tmp";
    folder += "/tunebox-standin-" + std::to_string(getuid());
    if (named && *named) folder = named;
    if (!make_folder(folder)) return "";
    struct stat found;
    // What is loaded from there runs, so it must be this user's own.
    bool own = stat(folder.c_str(), &found) == 0 && found.st_uid == getuid() && (found.st_mode & 022) == 0;
    return own ? folder : "";
}

std::string fresh_name(const std::string &beside) {
    static std::atomic<unsigned> count;
    return beside + "." + std::to_string(getpid()) + "." + std::to_string(count++);
}

bool make_folder(const std::string &path) {
    struct stat found;
    return mkdir(path.c_str(), 0700) == 0 || (stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode));
}

std::string read_file(const std::string &path) {
    std::string all;
    FILE *file = fopen(path.c_str(), "rb");
    if (!file) return all;
    char some[1 << 14];
    for (size_t n; (n = fread(some, 1, sizeof some, file)) > 0;) all.append(some, n);
    fclose(file);
    return all;
}

bool write_file(const std::string &path, const std::string &text) {
    std::string draft = fresh_name(path);
    FILE *file = fopen(draft.c_str(), "wb");
    if (!file) return false;
    bool whole = fwrite(text.data(), 1, text.size(), file) == text.size();
    whole = fclose(file) == 0 && whole;
    return whole && rename_file(draft, path);
}

bool rename_file(const std::string &from, const std::string &to) { return rename(from.c_str(), to.c_str()) == 0; }
void remove_file(const std::string &path) { unlink(path.c_str()); }

int run_program(const std::vector<std::string> &words, const std::string &said) {
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error) return 127;
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return 127;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
