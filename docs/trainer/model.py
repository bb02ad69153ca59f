"""Makes a tiny model for a try without a GPU: python docs/trainer/model.py [--format tools|mini|none] DIRECTORY

It is a random Qwen3 of two layers that says one of three whole actions, each of which is a token of its own: it repairs
common slips, looks at the program, or submits. So it solves some of the bundled programs with bugs by chance, and has
something to learn. With --format mini its actions are those of mini-swe-agent, as bugs-mini needs it, and with --format
none it says any token, as tinker-check does. Needs numpy, safetensors and tokenizers, which SkyRL and vLLM bring.
"""
import argparse
import glob
import json
import os

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HIDDEN, LAYERS, HEADS, KV, HEAD, INNER, CONTEXT = 64, 2, 4, 2, 32, 128, 32768
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
# What Qwen2.5's template writes for messages without tools; deepswe writes prompts itself.
TEMPLATE = """{%- if messages[0]['role'] != 'system' %}<|im_start|>system
You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
REPAIR = "sed -E -i 's/sum=1$/sum=0/;s/count=1$/count=0/;s/all=0$/all=1/;s/all [+] /all * /;s/sum - /sum + /' program.*"
ACTIONS = [("execute_bash", "cmd", REPAIR, .3), ("execute_bash", "cmd", "cat program.*", .3),
           ("finish", "command", "submit", .4)]
MINI = [("bash", "command", REPAIR, .3), ("bash", "command", "cat program.*", .3),
        ("bash", "command", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", .4)]


def said(form, tool, parameter, value):
    if form != "xml":
        return "<tool_call>\n" + json.dumps({"name": tool, "arguments": {parameter: value}}) + "\n</tool_call>"
    return f"<function={tool}>\n<parameter={parameter}>{value}</parameter>\n</function>"


def tokenizer(size, words):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated", False),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    here = os.path.dirname(os.path.abspath(__file__))
    files = glob.glob(here + "/../**/*.md", recursive=True) + glob.glob(here + "/../../agent/**/*.*", recursive=True)
    t.train(sorted(f for f in files if f.endswith((".md", ".go", ".yaml"))), trainers.BpeTrainer(
        vocab_size=size - len(special) - len(words), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    t.add_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    t.add_tokens([AddedToken(w, special=False, normalized=False) for w in words])
    return t


def weights(size, newline, end, words):
    r = np.random.default_rng(1)

    def random(*shape, scale):
        return (r.standard_normal(shape) * scale).astype(np.float32)

    w = {"model.embed_tokens.weight": random(size, HIDDEN, scale=1), "model.norm.weight": np.ones(HIDDEN, np.float32)}
    for i in range(LAYERS):
        at, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
        w[at + "q_proj.weight"] = random(HEADS * HEAD, HIDDEN, scale=.1)
        w[at + "k_proj.weight"] = random(KV * HEAD, HIDDEN, scale=.1)
        w[at + "v_proj.weight"] = random(KV * HEAD, HIDDEN, scale=.1)
        w[at + "o_proj.weight"] = random(HIDDEN, HEADS * HEAD, scale=.05)
        w[at + "q_norm.weight"] = w[at + "k_norm.weight"] = np.ones(HEAD, np.float32)
        w[mlp + "gate_proj.weight"] = random(INNER, HIDDEN, scale=.1)
        w[mlp + "up_proj.weight"] = random(INNER, HIDDEN, scale=.1)
        w[mlp + "down_proj.weight"] = random(HIDDEN, INNER, scale=.05)
        for name in "input_layernorm", "post_attention_layernorm":
            w[f"model.layers.{i}.{name}.weight"] = np.ones(HIDDEN, np.float32)
    embed, head = w["model.embed_tokens.weight"], random(size, HIDDEN, scale=.02 if words else .15)
    w["lm_head.weight"] = head
    if not words:  # an ordinary model, whose head is large enough that a change of the state can prefer any token
        return w
    # After the line break that begins a reply comes an action, and after an action the end. The last layer's state has
    # the length 8 and, with residuals this small, nearly the direction of the last token's embedding.
    embed[newline], embed[list(words)] = 0, 0
    embed[newline, 0] = embed[list(words), 1] = 8
    head[:, :2] = 0
    for word, share in words.items():
        head[word, 0] = (20 + np.log(share)) / 8
    head[end, 1] = 20 / 8
    return w


def main():
    p = argparse.ArgumentParser()
    p.add_argument("directory")
    p.add_argument("--format", choices=["xml", "tools", "mini", "none"], default="xml",
                   help="how its actions are written")
    a = p.parse_args()
    os.makedirs(a.directory, exist_ok=True)
    actions = {said(a.format, *action[:3]): action[3] for action in {"mini": MINI, "none": []}.get(a.format, ACTIONS)}
    size = 4096 if actions else 1024  # where every token is tried, fewer are learned sooner
    t = tokenizer(size, list(actions))
    t.save(os.path.join(a.directory, "tokenizer.json"))
    end, pad = t.token_to_id("<|im_end|>"), t.token_to_id("<|endoftext|>")

    def write(name, value):
        with open(os.path.join(a.directory, name), "w") as f:
            json.dump(value, f, indent=2)

    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE})
    write("config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV, "head_dim": HEAD, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": size,
        "eos_token_id": end, "pad_token_id": pad})
    words = {t.token_to_id(text): share for text, share in actions.items()}
    save_file(weights(size, t.encode("\n").ids[0], end, words), os.path.join(a.directory, "model.safetensors"),
              metadata={"format": "pt"})


main()
