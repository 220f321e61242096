// NVRTC by the system's C++ compiler: the text of a module, with the emulated machine in front, becomes a shared object.
//
// It goes through the preprocessor first, where a mark stands before each kernel: their names end in a table behind the
// text (machine/entry.h), those that macros make among them. Objects are kept by what went into them.
#include "files.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum Status { SUCCESS = 0, PROGRAM_CREATION_FAILURE = 2, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5,
              COMPILATION = 6, INTERNAL_ERROR = 11 };

struct Program {
    std::string source, name, object, log;
};

// The texts of the emulated machine, as they lay there when this library was built.
#define EMBED(symbol, file)                                                                                            \
    asm(".section .rodata\n.global " #symbol "\n.hidden " #symbol "\n" #symbol ":\n.incbin \"" MACHINE "/" file         \
        "\"\n.byte 0\n.previous\n");                                                                                   \
    extern "C" const char symbol[]
EMBED(text_of_stacks, "stacks.h");
EMBED(text_of_threads, "threads.h");
EMBED(text_of_machine, "machine.h");
EMBED(text_of_warpgroup, "warpgroup.h");
EMBED(text_of_entry, "entry.h");

struct Text {
    const char *name, *text;
};
static const Text TEXTS[] = {{"stacks.h", text_of_stacks}, {"threads.h", text_of_threads}, {"machine.h", text_of_machine},
                             {"warpgroup.h", text_of_warpgroup}, {"entry.h", text_of_entry}};

// Products are fused with sums as NVRTC does; 16 bits are read as pairs and as eights, which strict aliasing forbids.
static const char *const FLAGS[] = {"-std=c++17", "-O2", "-march=native", "-w", "-ffp-contract=fast", "-fno-math-errno",
                                    "-fno-strict-aliasing", "-fno-threadsafe-statics", "-fvisibility=hidden", "-fPIC",
                                    "-shared", "-Wl,--as-needed"};

static std::string compiler() {
    const char *named = getenv("CXX");
    return named && *named ? named : "g++";
}

// The digest of the machine, of how it is compiled and of the processor that it is compiled for.
static const std::string &machine_digest() {
    static const std::string found = [] {
        std::string all = compiler() + processor_words();
        for (const Text &text : TEXTS) all += text.text;
        for (const char *flag : FLAGS) all += flag;
        return digest(all);
    }();
    return found;
}

API int nvrtcVersion(int *major, int *minor) {
    // Objects kept by version are made anew where the machine has changed.
    *major = 13, *minor = 990000 + (int)(strtoul(machine_digest().substr(0, 8).c_str(), nullptr, 16) % 10000);
    return SUCCESS;
}
API int nvrtcGetNumSupportedArchs(int *count) { return *count = 3, SUCCESS; }
API int nvrtcGetSupportedArchs(int *all) { return all[0] = 80, all[1] = 90, all[2] = 100, SUCCESS; }

API int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *,
                           const char *const *) {
    if (!program || !source) return INVALID_INPUT;
    if (headers != 0) return PROGRAM_CREATION_FAILURE;
    *program = new Program{source, name ? name : "default_program", "", ""};
    return SUCCESS;
}
API int nvrtcDestroyProgram(void **program) {
    if (!program || !*program) return INVALID_PROGRAM;
    delete (Program *)*program;
    return *program = nullptr, SUCCESS;
}

// What the options ask for.
struct Asked {
    std::string architecture = "75";
    std::vector<std::string> macros;
};

static bool begins(const std::string &text, const char *with) { return text.compare(0, strlen(with), with) == 0; }

static bool understand(Asked &asked, const std::string &option) {
    for (const char *name : {"--gpu-architecture=", "-arch="}) {
        if (!begins(option, name)) continue;
        std::string value = option.substr(strlen(name));
        size_t at = begins(value, "sm_") ? 3 : begins(value, "compute_") ? 8 : 0;
        asked.architecture = value.substr(at);
        return at > 0 && atoi(asked.architecture.c_str()) >= 50;
    }
    if (begins(option, "-D")) return asked.macros.push_back(option), true;
    if (begins(option, "--define-macro=")) return asked.macros.push_back("-D" + option.substr(15)), true;
    if (begins(option, "--std=")) return option == "--std=c++17";
    for (const char *name : {"--device-as-default-execution-space", "-default-device", "--fmad=", "--ptxas-options=",
                             "--use_fast_math", "-lineinfo", "--generate-line-info"}) {
        if (begins(option, name)) return true;
    }
    return false;
}

static bool is_of_word(char c) { return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

// The kernel after a mark: the last word before its parameters, and the bound on its threads if it has one.
static std::string entry_after(const std::string &text, size_t at) {
    std::string word, bound = "0";
    while (at < text.size()) {
        if (is_of_word(text[at])) {
            size_t begin = at;
            while (at < text.size() && is_of_word(text[at])) ++at;
            word = text.substr(begin, at - begin);
        } else if (text[at] == '(' && word == "emulated_bounds") {
            size_t begin = ++at;
            for (int open = 1; at < text.size() && open > 0; ++at) open += (text[at] == '(') - (text[at] == ')');
            bound = text.substr(begin, at - 1 - begin);
        } else if (text[at] == '(') {
            return "    EMULATED_ENTRY(" + word + ", (" + bound + ")),\n";
        } else {
            ++at;
        }
    }
    return "";
}

// The table of the kernels in a text that went through the preprocessor.
static std::string table(const std::string &listing, const std::string &architecture) {
    static const std::string MARK = "emulated_kernel";
    std::string rows;
    for (size_t at = 0; (at = listing.find(MARK, at)) != std::string::npos;) {
        bool whole = (at == 0 || !is_of_word(listing[at - 1])) && !is_of_word(listing[at + MARK.size()]);
        at += MARK.size();
        if (whole) rows += entry_after(listing, at);
    }
    std::string open = "extern \"C\" __attribute__((visibility(\"default\"))) ";
    return "\n#line 1 \"table of kernels\"\n" + open + "const emulated::Entry emulated_kernels[] = {\n" + rows +
           "    {nullptr, nullptr, 0, nullptr, nullptr},\n};\n" + open + "const char emulated_architecture[] = \"" +
           architecture + "\";\n";
}

// What the compiler said, with places as NVRTC has them: `name(3): error: …` for `name:3:7: error: …`.
static std::string as_nvrtc(const std::string &said, const std::string &name) {
    std::string words;
    for (size_t at = 0, end; at < said.size(); at = end + 1) {
        end = std::min(said.find('\n', at), said.size());
        std::string line = said.substr(at, end - at);
        int row = 0, column = 0, length = 0;
        if (begins(line, (name + ":").c_str()) && sscanf(line.c_str() + name.size(), ":%d:%d:%n", &row, &column, &length) == 2) {
            line = name + "(" + std::to_string(row) + "):" + line.substr(name.size() + (size_t)length);
        }
        words += line + "\n";
    }
    return words;
}

// Runs the compiler; what it says goes into the log.
static bool compile(Program &program, const std::vector<std::string> &words, const std::string &draft) {
    std::string said = draft + ".log";
    int status = run_program(words, said);
    program.log += as_nvrtc(read_file(said), program.name);
    remove_file(said);
    if (status == 127) program.log += "`" + words[0] + "` cannot be run; the stand-in compiles kernels with it\n";
    return status == 0;
}

static bool make(Program &program, const Asked &asked, const std::string &folder, const std::string &object) {
    std::string machine = folder + "/" + machine_digest(), draft = fresh_name(object), text = draft + ".cpp";
    if (!make_folder(machine)) return false;
    for (const Text &each : TEXTS) if (!write_file(machine + "/" + each.name, each.text)) return false;
    std::vector<std::string> base = {compiler(), "-x", "c++", "-I" + machine};
    base.insert(base.end(), asked.macros.begin(), asked.macros.end());
    std::string body = "#include \"entry.h\"\n#line 1 \"" + program.name + "\"\n" + program.source + "\n";
    std::vector<std::string> listing = base, whole = base;
    for (auto word : {"-std=c++17", "-w", "-E", "-P", "-DEMULATED_LISTING", "-include", "machine.h"}) listing.push_back(word);
    listing.insert(listing.end(), {text, "-o", draft + ".listing"});
    for (const char *flag : FLAGS) whole.push_back(flag);
    whole.insert(whole.end(), {text, "-o", draft + ".so"});
    bool made = write_file(text, program.source + "\n") && compile(program, listing, draft);
    made = made && write_file(text, body + table(read_file(draft + ".listing"), asked.architecture));
    made = made && compile(program, whole, draft) && rename_file(draft + ".so", object);
    for (const char *end : {".cpp", ".listing", ".so"}) remove_file(draft + end);
    return made;
}

API int nvrtcCompileProgram(void *handle, int count, const char *const *options) {
    static std::mutex alone;
    std::lock_guard<std::mutex> guard(alone);
    if (!handle) return INVALID_PROGRAM;
    auto &program = *(Program *)handle;
    Asked asked;
    std::string all = machine_digest() + program.source;
    for (int i = 0; i < count; ++i) {
        if (!understand(asked, options[i])) {
            program.log = std::string("nvrtc: error: invalid value for an option, or an unknown one: ") + options[i] + "\n";
            return INVALID_OPTION;
        }
        all += std::string("\n") + options[i];
    }
    std::string folder = cache_folder();
    if (folder.empty()) {
        program.log = "the stand-in's folder for objects cannot be made or is another's; TUNEBOX_STANDIN_CACHE names one\n";
        return INTERNAL_ERROR;
    }
    std::string object = folder + "/" + digest(all) + ".so";
    program.object = read_file(object);
    if (program.object.empty() && make(program, asked, folder, object)) program.object = read_file(object);
    return program.object.empty() ? COMPILATION : SUCCESS;
}

static int size_of(void *program, size_t *size, const std::string Program::*what, size_t more) {
    if (!program) return INVALID_PROGRAM;
    return *size = (((Program *)program)->*what).size() + more, SUCCESS;
}
static int copy_of(void *program, char *to, const std::string Program::*what, size_t more) {
    if (!program) return INVALID_PROGRAM;
    const std::string &from = ((Program *)program)->*what;
    return memcpy(to, from.c_str(), from.size() + more), SUCCESS;
}
// A text and its end; an object has none.
API int nvrtcGetProgramLogSize(void *program, size_t *size) { return size_of(program, size, &Program::log, 1); }
API int nvrtcGetProgramLog(void *program, char *to) { return copy_of(program, to, &Program::log, 1); }
API int nvrtcGetCUBINSize(void *program, size_t *size) { return size_of(program, size, &Program::object, 0); }
API int nvrtcGetCUBIN(void *program, char *to) { return copy_of(program, to, &Program::object, 0); }
API int nvrtcGetPTXSize(void *program, size_t *size) { return size_of(program, size, &Program::object, 1); }
API int nvrtcGetPTX(void *program, char *to) { return copy_of(program, to, &Program::object, 1); }

API const char *nvrtcGetErrorString(int status) {
    switch (status) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "NVRTC_ERROR unknown";
    }
}
