"""Greedy writing by llama.cpp on the CPU, through the functions that llama-cpp-python passes on.

Usage: decode_llama.py MODEL.gguf --batch 1 [--prompt 32] [--tokens 128] [--passes 3]
Every row is a sequence with a prompt of its own, seeded random tokens; all rows are decoded in one batch. As many tokens
are written as asked for. The clock starts when the first new token is there. Prints tokens/s of the
fastest pass, as `tunebox bench` does.
"""
import argparse, json, os, random, sys, time
import llama_cpp
import numpy

p = argparse.ArgumentParser()
p.add_argument("model"); p.add_argument("--batch", type=int, default=1); p.add_argument("--prompt", type=int, default=32)
p.add_argument("--tokens", type=int, default=128); p.add_argument("--passes", type=int, default=3)
a = p.parse_args()

SILENT = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(SILENT, None)
llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(a.model.encode(), llama_cpp.llama_model_default_params())
if not model:
    sys.exit(f"llama.cpp cannot open `{a.model}`; it takes GGUF files")
settings = llama_cpp.llama_context_default_params()
settings.n_ctx = a.batch * (a.prompt + a.tokens + 8)
settings.n_batch = settings.n_ubatch = max(512, a.batch)
settings.n_seq_max = a.batch
settings.n_threads = settings.n_threads_batch = os.cpu_count()
context = llama_cpp.llama_init_from_model(model, settings)
vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
rows = llama_cpp.llama_batch_init(max(a.batch, a.prompt), 0, 1)


def decode(tokens):
    """Adds (id, position, sequence, wanted) to the context; the likeliest next id after each that is wanted."""
    rows.n_tokens = len(tokens)
    for at, (token, position, sequence, wanted) in enumerate(tokens):
        rows.token[at], rows.pos[at], rows.n_seq_id[at], rows.logits[at] = token, position, 1, wanted
        rows.seq_id[at][0] = sequence
    if llama_cpp.llama_decode(context, rows) != 0:
        sys.exit("llama.cpp could not decode a batch")
    places = [at for at, token in enumerate(tokens) if token[3]]
    logits = (numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, at), shape=(vocabulary,)) for at in places)
    return [int(row.argmax()) for row in logits]


def write():
    """Tokens a second of one pass over emptied sequences."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
    draw, last = random.Random(2), []
    for row in range(a.batch):
        last += decode([(draw.randrange(min(10_000, vocabulary)), at, row, at == a.prompt - 1) for at in range(a.prompt)])
    begun = time.perf_counter()
    for position in range(a.prompt, a.prompt + a.tokens - 1):
        last = decode([(token, position, row, True) for row, token in enumerate(last)])
    return a.batch * (a.tokens - 1) / (time.perf_counter() - begun)


fastest = max(write() for _ in range(a.passes))
print(json.dumps({"tokens_per_second": fastest, "batch": a.batch, "threads": os.cpu_count(), "versions": {"llama_cpp": llama_cpp.__version__}}))
