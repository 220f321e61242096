"""Makes the golden files of tests/golden/text: two tiny tokenizers, chat templates, and what transformers does with them.

Usage: text.py [MODELS]      needs: transformers==5.23 trl==1.16 tokenizers gguf (CPU is enough, nothing is downloaded)
With MODELS, a folder that holds qwen2.5-coder-0.5b.gguf and gemma-3-270m.gguf, the ids of those real models are written too.

The tiny tokenizers are trained on the sentences below. Each is written as a GGUF file first; its folder is what
transformers makes of that file, so both forms hold the same vocabulary.
"""
import datetime
import json
import os
import sys
import unicodedata

import gguf
import transformers.utils.chat_template_utils as rendering
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer
from trl.data_utils import common_prefix_length

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")
MOMENT = 1_700_000_000

CORPUS = [
    "The river runs past the old mill and the children count the boats that pass it every day.",
    "A small model learns small words first: the, and, of, to, in, is, that, it, was, for, on, are, as, with.",
    "def add(left, right):\n    return left + right\n\nfor number in range(10):\n    print(number, add(number, 1))\n",
    "What is the name of the river? The river is named after the town. What is the name of the town?",
    "user asks, assistant answers; system says be brief. One two three four five six seven eight nine ten.",
    "naïve café, Straße, señor, 你好世界, привет мир, 12 34 567 8901, 3.14, http://example.org/path?query=1",
    "it's we're they've I'm you'll he'd don't  two  spaces\n\nand\tlines\n",
] * 4

TEXTS = [
    "", " ", "a", "Hello, world!", "The river runs past the mill.", " leading", "trailing ", "two  spaces   three    four",
    "\n", "\n\n\n", "a\nb\r\nc\rd", "\t\tindented\n\t\tmore", " \n \n ", "   \n\n   x", "\u00a0nbsp\u2003em\u3000wide",
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\"  # note\n", "for (int i = 0; i < n; ++i) { a[i] <<= 2; }",
    "{\"a\": [1, 2.5e-3, null, true], \"b\": \"\\u00e9\"}", "0 1 12 123 1234 12345 3.14159 1,000,000",
    "I'm you're they'VE it'S we'd I'll DON'T", "naïve café Straße Ångström", "e\u0301 cafe\u0301 A\u030a", "你好,世界。日本語 한국어",
    "Привет, мир! Ελληνικά", "مرحبا שלום नमस्ते สวัสดี", "😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈", "𝔘𝔫𝔦 𝟘𝟙 𠀋 ﬁ ½ ² Ⅷ", "\u200b\u200d\ufeff\u2028",
    "control \x00\x01\x07\x1b[31m\x7f end", "\ufffd replaced \ufffd\ufffd", "<|turn|>user\nhi<|end|>\n", "x<|endoftext|>y", "<start>a<stop> <end>",
    "<|turn", "▁low▁block ▁▁", "ĠGPT Ċ bytes", "river" * 20, "\u0300\u0301\u0302", "x" + " " * 17 + "y", "-" * 33, "MixedCASE camelCase snake_case",
    "١٢٣ ४५६ ⅓", "<note>kept whole</note>", "\r\r\n\n\r", "  <|end|>  ", "a{note}b",
]

# Chat templates of our own, from plain to awkward. `marked` says the same as `plain`, with the answers marked.
PLAIN = """{%- if tools %}
    {{- '<|turn|>system\\nTools: ' + (tools | tojson) + '<|end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|turn|>assistant\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}{{- call.function | tojson }}{% endfor %}
        {{- '<|end|>\\n' }}
    {%- else %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
{%- endif %}
"""
MARKED = """{#- {% generation %} in a comment is no mark #}
{%- set seen = namespace(answers=0) %}
{%- if tools %}
    {{- '<|turn|>system\\nTools: ' + (tools | tojson) + '<|end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|turn|>assistant\\n' }}
        {%- generation -%}
        {%- set words = message.content %}
        {%- set seen.answers = seen.answers + 1 %}
        {{- words + '' }}
        {%- for call in message.tool_calls or [] %}{{- call.function | tojson }}{% endfor %}
        {{- '<|end|>\\n' }}
        {%- endgeneration -%}
    {%- else %}
        {{- '<|turn|>' + message.role + '\\n' + message.content + '<|end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
{%- endif %}
"""
BRACKETS = """{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set first = messages[0]['content'].strip() ~ '\\n\\n' %}
{% else %}{% set rest = messages %}{% set first = '' %}{% endif %}
{% for message in rest %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate, not ' ~ message.role) }}
    {% endif %}
    {% if message['role'] == 'user' %}
        {{ '[ask] ' + (first if loop.first else '') + message['content'].strip() + ' [/ask]' }}
    {% else %}
        {{ ' ' + message['content'].strip() + '<|end|>' }}
    {% endif %}
{% endfor %}
"""
THINKING = """{%- set last = namespace(user=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and last.user < 0 %}{% set last.user = messages | length - 1 - loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- set thought = message.reasoning_content if message.reasoning_content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|turn|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' and loop.index0 > last.user %}
        {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
    {%- else %}
        {{- content }}
    {%- endif %}
    {{- '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn|>assistant\\n' }}
    {%- if quick is defined and quick is true %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
PYTHON = """{%- macro show(value) %}{{ value }}|{{ value | tojson }}|{{ value | string }}{% endmacro -%}
{{ bos_token }}{{ strftime_now('%d %b %Y') }}
{% for message in messages %}
    {%- if message.content is iterable and message.content is not mapping and tools is not iterable %}
[{{ loop.index }}{{ '' if loop.last else ',' }}] {{ message.role | capitalize }}: {{ message.content.title().replace('A', 'a', 1) }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
{{ call.function.name }}({% for name, value in call.function.arguments.items() %}{{ name }}={{ show(value) }}{{ ', ' if not loop.last }}{% endfor %})
{{ call.function.arguments | tojson(indent=2, sort_keys=true) }} {{ call.function.arguments | tojson(ensure_ascii=true, separators=(',', ':')) }}
    {%- endfor %}
    {%- if loop.index0 == 2 %}{% break %}{% endif %}
{% endfor %}
{{ [none, true, 1.0, 1e22, 1.5e-7, 'it\\'s', "a\\nb", {'k': (1, 2)}] }} {{ missing }} {{ eos_token.startswith('<') }} {{ 'a-b-c'.rsplit('-', 1) }}
"""
TEMPLATES = {"plain": PLAIN, "marked": MARKED, "brackets": BRACKETS, "thinking": THINKING, "python": PYTHON}

CALL = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Öln", "days": 2, "share": 0.5, "far": 1e16, "on": True, "off": None, "list": [1, "a<b>&'"], "empty": {}}}}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a \"city\" <é>", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
CHATS = {
    "one": {"messages": [{"role": "user", "content": "What is the name of the river?"}, {"role": "assistant", "content": "The Rhine.\n"}]},
    "two": {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a river."}, {"role": "assistant", "content": "The Rhine."}, {"role": "user", "content": "  Another?\n\nplease"}, {"role": "assistant", "content": "The Elbe: 'q' \"d\" <tag> & é 😀"}]},
    "tools": {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": CALL}], "tools": TOOLS},
    "calls": {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": CALL}, {"role": "user", "content": "and?"}, {"role": "assistant", "content": "never shown"}]},
    "thought": {"messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "<think>\nadd\n</think>\n\n2"}, {"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4", "reasoning_content": "sum them"}]},
    "quick": {"messages": [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}], "variables": {"quick": True}},
}
COMPLETIONS = [
    ("What is the name of the river?", " The Rhine."), ("The ri", "ver runs"), ("", "The river."), ("Count:\n", "\n1 2 3"), ("a <|turn|>", "b<|endoftext|>"), ("你", "好世界 😀"),
]


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(MOMENT, datetime.timezone.utc).replace(tzinfo=None)


def write(path, value):
    with open(os.path.join(HERE, path), "w") as file:
        json.dump(value, file, indent=1, ensure_ascii=True)
        file.write("\n")


def start(path, architecture):
    writer = gguf.GGUFWriter(os.path.join(HERE, path), architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def make_bytes():
    """A byte-level BPE in the manner of Qwen."""
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=480, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = [1] * len(tokens)
    for name, kind in [("<|turn|>", 3), ("<|end|>", 3), ("<|endoftext|>", 3), ("<note>", 4), ("{note}", 4), ("[PAD0]", 5)]:
        tokens.append(name)
        kinds.append(kind)
    writer = start("bytes.gguf", "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokens.index("<|end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(PLAIN)
    finish(writer)
    return tokens, model


def make_pieces():
    """A SentencePiece-style BPE with byte fallback, as Gemma and as Llama would store it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<pad>", "<stop>", "<start>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    learnt = json.loads(tokenizer.to_str())["model"]["vocab"]
    learnt = [token for token in sorted(learnt, key=learnt.get) if token not in special]
    tokens = special + [f"<0x{byte:02X}>" for byte in range(256)] + ["  ", "    ", "\n\n", "<note>", "<|turn|>", "<|end|>"] + learnt
    kinds = [3] * 3 + [2] + [6] * 256 + [4] * 4 + [3] * 2 + [1] * len(learnt)
    for name, architecture, prefix in [("gemma", "gemma3", False), ("llama", "llama", True)]:
        writer = start(f"pieces-{name}.gguf", architecture)
        if name == "gemma":
            writer.add_key_length(8)
            writer.add_sliding_window(8)
        else:
            writer.add_rope_dimension_count(8)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores([-1000.0] * (len(tokens) - len(learnt)) + [-float(index) for index in range(len(learnt))])
        writer.add_token_types(kinds)
        writer.add_bos_token_id(2)
        writer.add_eos_token_id(1)
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(0)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(prefix)
        finish(writer)


def fold(name, **extra):
    """What transformers makes of a GGUF file, as a folder; the files beside `tokenizer.json` are put in."""
    tokenizer = AutoTokenizer.from_pretrained(HERE, gguf_file=f"{name}.gguf")
    tokenizer.save_pretrained(os.path.join(HERE, name))
    for file, value in extra.items():
        write(f"{name}/{file}.json", value)
    return AutoTokenizer.from_pretrained(os.path.join(HERE, name)), tokenizer


def encodings(folder, file, texts=TEXTS):
    rows = []
    for text in texts:
        bare, full = (folder.encode(text, add_special_tokens=special) for special in (False, True))
        other = file.encode(text, add_special_tokens=True)
        # Qwen composes characters; transformers leaves that out where it reads a GGUF file.
        assert full == other or unicodedata.normalize("NFC", text) != text, text
        rows.append({"text": text, "ids": bare, "full": full, "decoded": folder.decode(full), "clean": folder.decode(full, skip_special_tokens=True)})
    return rows


def styles(tokens, model):
    """Other ways to cut text, over the byte-level vocabulary: by names that transformers does not know, or settings it lacks."""
    vocab = {token: index for index, token in enumerate(tokens)}
    llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cuts = {
        "gpt-2": (level, False),
        "smollm": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level]), False),
        "llama-bpe": (pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(llama), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), True),
    }
    found = {}
    for name, (cut, whole) in cuts.items():
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(pair) for pair in model["merges"]], ignore_merges=whole))
        tokenizer.pre_tokenizer = cut
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|turn|>", "<|end|>", "<|endoftext|>"])
        tokenizer.add_tokens(["<note>", "{note}"])
        found[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    return found


def chats(tokenizer):
    rows = []
    for template, source in TEMPLATES.items():
        for chat, record in CHATS.items():
            for opening in (False, True):
                row = {"template": template, "chat": chat, "opening": opening}
                arguments = dict(chat_template=source, tools=record.get("tools"), add_generation_prompt=opening, **record.get("variables", {}))
                try:
                    row["text"] = tokenizer.apply_chat_template(record["messages"], tokenize=False, **arguments)
                except Exception as error:
                    row["error"] = str(error)
                    rows.append(row)
                    continue
                row["ids"] = tokenizer.apply_chat_template(record["messages"], return_dict=True, **arguments)["input_ids"]
                if template == "marked" and not opening:
                    masked = tokenizer.apply_chat_template(record["messages"], return_dict=True, return_assistant_tokens_mask=True, **arguments)
                    row["mask"] = masked["assistant_masks"]
                rows.append(row)
    return rows


def completions(tokenizer):
    """Prompt and completion as TRL's SFT trainer tokenizes them: an end-of-text token, then the common prefix."""
    rows = []
    for prompt, completion in COMPLETIONS:
        end = tokenizer.eos_token
        whole = prompt + (completion if completion.endswith(end) else completion + end)
        asked, ids = tokenizer(prompt)["input_ids"], tokenizer(whole)["input_ids"]
        at = common_prefix_length(asked, ids)
        text = prompt + completion
        text = tokenizer(text if text.endswith(end) else text + end)["input_ids"]
        rows.append({"prompt": prompt, "completion": completion, "ids": ids, "mask": [0] * at + [1] * (len(ids) - at), "merged": at < len(asked), "text": text})
    return rows


def conversations(tokenizer):
    """The same for lists of messages: the last one is the completion."""
    rows = []
    for template in ("plain", "brackets", "thinking"):
        for chat in ("one", "two", "thought"):
            messages = CHATS[chat]["messages"]
            ids = [tokenizer.apply_chat_template(part, chat_template=TEMPLATES[template], add_generation_prompt=opening, return_dict=True)["input_ids"] for part, opening in ((messages[:-1], True), (messages, False))]
            at = common_prefix_length(*ids)
            rows.append({"template": template, "chat": chat, "ids": ids[1], "mask": [0] * at + [1] * (len(ids[1]) - at), "merged": at < len(ids[0])})
    return rows


def main():
    os.makedirs(HERE, exist_ok=True)
    rendering.datetime = Fixed
    tokens, model = make_bytes()
    make_pieces()
    end, stop = tokens.index("<|end|>"), tokens.index("<|endoftext|>")
    folders = {"bytes": fold("bytes", generation_config={"eos_token_id": [end, stop]}), "pieces-gemma": fold("pieces-gemma"), "pieces-llama": fold("pieces-llama")}
    write("texts.json", {name: encodings(*pair) for name, pair in folders.items()})
    write("styles.json", {"texts": TEXTS, "ids": styles(tokens, model)})
    tokenizer = folders["bytes"][0]
    write("chats.json", {"moment": MOMENT, "templates": TEMPLATES, "chats": CHATS, "rows": chats(tokenizer)})
    write("examples.json", {"bytes": completions(tokenizer), "pieces-gemma": completions(folders["pieces-gemma"][0]), "conversations": conversations(tokenizer)})
    if len(sys.argv) > 1:
        real = {}
        for name in ("qwen2.5-coder-0.5b", "gemma-3-270m"):
            tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=f"{name}.gguf")
            if name.startswith("qwen"):
                tokenizer._tokenizer.normalizer = normalizers.NFC()
            real[name] = [{"text": text, "full": tokenizer.encode(text)} for text in TEXTS]
        write("real.json", real)


if __name__ == "__main__":
    main()
