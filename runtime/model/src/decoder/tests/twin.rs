//! A slow reference of the model in `f64`, one sequence at a time, written from the formulas with plain tensor
//! operations, so that autograd gives every gradient. Shares no code with the decoder.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor, Var};
use tunebox_compute::fused::{Activation, Tap, Taps};

use crate::Model;
use crate::adapter::{Adapter, AdapterKind};
use crate::configuration::Configuration;
use crate::policy::Seeds;
use crate::rows::Rows;
use crate::stream::Site;

pub(super) struct Twin {
    configuration: Configuration,
    weights: HashMap<String, Tensor>,
    /// All trained values, by slot name.
    pub(super) variables: HashMap<String, Var>,
    scales: HashMap<String, f64>,
    dora: bool,
}

impl Twin {
    pub(super) fn new(model: &Model, adapter: &Adapter) -> Self {
        let parameters = adapter.parameters();
        let mut variables = HashMap::new();
        for (number, slot) in parameters.slots().iter().enumerate() {
            let value = parameters.value(number).unwrap().to_dtype(DType::F64).unwrap();
            variables.insert(slot.name.clone(), Var::from_tensor(&value.contiguous().unwrap()).unwrap());
        }
        let mut weights = HashMap::new();
        for (name, _) in crate::families::weight_shapes(&model.configuration) {
            let weight = match variables.get(&name) {
                Some(variable) => variable.as_tensor().clone(),
                None => model.weights.get(&name).unwrap().to_dtype(DType::F64).unwrap(),
            };
            weights.insert(name, weight);
        }
        let (settings, mut configuration) = (adapter.settings(), model.configuration.clone());
        let is_apart = ["model.embed_tokens.weight", "lm_head.weight"].iter().any(|name| variables.contains_key(*name));
        if configuration.tied && is_apart && settings.kind != AdapterKind::Full && !settings.ensure_weight_tying {
            configuration.tied = false;
            let embedding = || model.weights.get("model.embed_tokens.weight").unwrap().to_dtype(DType::F64).unwrap();
            let head = variables.get("lm_head.weight").map_or_else(embedding, |head| head.as_tensor().clone());
            weights.insert("lm_head.weight".into(), head);
        }
        let scales = adapter.modules().iter().map(|module| (module.site.path(module.layer), module.scale)).collect();
        let dora = adapter.settings().kind == AdapterKind::Dora;
        Self { configuration, weights, variables, scales, dora }
    }

    fn weight(&self, name: &str) -> &Tensor {
        &self.weights[name]
    }

    fn linear(&self, path: &str, x: &Tensor) -> Tensor {
        let mut weight = self.weight(&format!("{path}.weight")).clone();
        if let Some(scale) = self.scales.get(path) {
            let a = self.variables[&format!("{path}.lora_A.weight")].as_tensor();
            let b = self.variables[&format!("{path}.lora_B.weight")].as_tensor();
            weight = (&weight + (b.matmul(a).unwrap() * *scale).unwrap()).unwrap();
            if self.dora {
                let m = self.variables[&format!("{path}.lora_magnitude_vector")].as_tensor();
                let norm = weight.sqr().unwrap().sum(1).unwrap().sqrt().unwrap().detach();
                weight = weight.broadcast_mul(&(m / norm).unwrap().unsqueeze(1).unwrap()).unwrap();
            }
        }
        let y = x.matmul(&weight.t().unwrap()).unwrap();
        match self.weights.get(&format!("{path}.bias")) {
            Some(bias) => y.broadcast_add(bias).unwrap(),
            None => y,
        }
    }

    fn norm(&self, name: &str, x: &Tensor) -> Tensor {
        let offset = if self.configuration.unit_offset_norm { 1.0 } else { 0.0 };
        let weight = (self.weight(&format!("{name}.weight")) + offset).unwrap();
        let last = x.rank() - 1;
        let mean = (x.sqr().unwrap().mean_keepdim(last).unwrap() + self.configuration.norm_epsilon).unwrap();
        x.broadcast_div(&mean.sqrt().unwrap()).unwrap().broadcast_mul(&weight).unwrap()
    }

    /// Splits `[tokens, heads · width]` into heads, `[heads, tokens, width]`.
    fn heads(&self, x: &Tensor, heads: usize) -> Tensor {
        let tokens = x.dim(0).unwrap();
        let split = x.reshape((tokens, heads, self.configuration.head_dim)).unwrap();
        split.transpose(0, 1).unwrap().contiguous().unwrap()
    }

    /// Rotates the first features of each head by rotation `rope`, with the frequencies of a sequence of `length`
    /// tokens.
    fn rotate(&self, x: &Tensor, rope: usize, length: usize) -> Tensor {
        let width = self.configuration.rotated;
        let (x, rest) = (x.narrow(2, 0, width).unwrap(), x.narrow(2, width, x.dim(2).unwrap() - width).unwrap());
        let tokens = x.dim(1).unwrap();
        let rope = &self.configuration.ropes[rope];
        let long = self.configuration.short_context().is_some_and(|most| length > most);
        let frequencies = if long { rope.long_frequencies(width).unwrap() } else { rope.frequencies(width) };
        let factor = rope.attention_factor();
        let angles: Vec<f64> =
            (0..tokens).flat_map(|token| frequencies.iter().map(move |frequency| token as f64 * frequency)).collect();
        let angles = Tensor::from_vec(angles, (tokens, width / 2), &Device::Cpu).unwrap();
        let (cos, sin) = (angles.cos().unwrap(), angles.sin().unwrap());
        // The axis of the two features of a pair.
        let (axis, heads) = (if self.configuration.adjacent_pairs { 3 } else { 2 }, x.dim(0).unwrap());
        let shape = if axis == 3 { (heads, tokens, width / 2, 2) } else { (heads, tokens, 2, width / 2) };
        let pairs = x.contiguous().unwrap().reshape(shape).unwrap();
        let part = |at| pairs.narrow(axis, at, 1).unwrap().squeeze(axis).unwrap();
        let times = |x: &Tensor, by: &Tensor| x.broadcast_mul(by).unwrap();
        let (left, right) = (part(0), part(1));
        let first = (times(&left, &cos) - times(&right, &sin)).unwrap();
        let second = (times(&right, &cos) + times(&left, &sin)).unwrap();
        let turned = Tensor::stack(&[first, second], axis).unwrap().reshape((heads, tokens, width)).unwrap();
        Tensor::cat(&[&(turned * factor).unwrap(), &rest], 2).unwrap()
    }

    fn attention(&self, layer: usize, x: &Tensor) -> Tensor {
        let configuration = &self.configuration;
        let path = |part: &str| format!("model.layers.{layer}.self_attn.{part}");
        let width = configuration.head_dim;
        let tokens = x.dim(0).unwrap();
        let (queries, keys) = (configuration.heads * width, configuration.kv_heads * width);
        let (q, k, v) = if configuration.fused_query_key_value {
            let all = self.linear(&path("qkv_proj"), x);
            (
                all.narrow(1, 0, queries).unwrap(),
                all.narrow(1, queries, keys).unwrap(),
                all.narrow(1, queries + keys, keys).unwrap(),
            )
        } else {
            (self.linear(&path("q_proj"), x), self.linear(&path("k_proj"), x), self.linear(&path("v_proj"), x))
        };
        let (q, k) = match configuration.joint_query_key_norm {
            true => (self.norm(&path("q_norm"), &q), self.norm(&path("k_norm"), &k)),
            false => (q, k),
        };
        let (mut q, mut k) = (self.heads(&q, configuration.heads), self.heads(&k, configuration.kv_heads));
        let v = self.heads(&v, configuration.kv_heads);
        if configuration.query_key_norm && !configuration.joint_query_key_norm {
            q = self.norm(&path("q_norm"), &q);
            k = self.norm(&path("k_norm"), &k);
        }
        let kind = configuration.layer_kinds[layer];
        if let Some(rope) = kind.rope {
            q = self.rotate(&q, rope, tokens);
            k = self.rotate(&k, rope, tokens);
        }
        let group = configuration.heads / configuration.kv_heads;
        let repeat = |x: &Tensor| {
            let wide = x.unsqueeze(1).unwrap().expand((configuration.kv_heads, group, tokens, width)).unwrap();
            wide.contiguous().unwrap().reshape((configuration.heads, tokens, width)).unwrap()
        };
        let (k, v) = (repeat(&k), repeat(&v));
        let mut scores = q.matmul(&k.t().unwrap()).unwrap();
        scores = (scores * f64::from(configuration.attention_scale)).unwrap();
        scores = cap(scores, configuration.attention_soft_cap);
        let hidden = |i: usize, j: usize| j > i || kind.window.is_some_and(|window| i - j >= window);
        let mask: Vec<f64> =
            (0..tokens).flat_map(|i| (0..tokens).map(move |j| if hidden(i, j) { -1e30 } else { 0.0 })).collect();
        let mask = Tensor::from_vec(mask, (tokens, tokens), &Device::Cpu).unwrap();
        let weights = log_softmax(&scores.broadcast_add(&mask).unwrap()).exp().unwrap();
        let mixed = weights.matmul(&v).unwrap().transpose(0, 1).unwrap().contiguous().unwrap();
        self.linear(&path("o_proj"), &mixed.reshape((tokens, queries)).unwrap())
    }

    fn feed_forward(&self, layer: usize, x: &Tensor) -> Tensor {
        let names = self.configuration.expert_names;
        let path = format!("model.layers.{layer}.{}", names.parent);
        let Some(experts) = self.configuration.experts else {
            return self.gated(&path, ["gate_proj", "up_proj", "down_proj"], x);
        };
        let shares = log_softmax(&self.linear(&format!("{path}.gate"), x)).exp().unwrap();
        // A share of the chosen ones is above that of every other expert.
        let order = shares.detach().arg_sort_last_dim(false).unwrap();
        let last = order.narrow(1, experts.active - 1, 1).unwrap().contiguous().unwrap();
        let is_chosen = shares.detach().broadcast_ge(&shares.detach().gather(&last, 1).unwrap()).unwrap();
        let mut weights = (shares * is_chosen.to_dtype(DType::F64).unwrap()).unwrap();
        if experts.normalized {
            weights = weights.broadcast_div(&weights.sum_keepdim(1).unwrap()).unwrap();
        }
        let weighted = |expert| {
            let output = self.gated(&format!("{path}.experts.{expert}"), names.maps, x);
            output.broadcast_mul(&weights.narrow(1, expert, 1).unwrap()).unwrap()
        };
        (0..experts.count).map(weighted).reduce(|sum, output| (sum + output).unwrap()).unwrap()
    }

    /// The maps gate, up and down, with these names below `path`.
    fn gated(&self, path: &str, [gate, up, down]: [&str; 3], x: &Tensor) -> Tensor {
        let path = |part: &str| format!("{path}.{part}");
        let inner = self.configuration.intermediate;
        let (gate, up) = if self.configuration.fused_gate_up {
            let both = self.linear(&path("gate_up_proj"), x);
            (both.narrow(1, 0, inner).unwrap(), both.narrow(1, inner, inner).unwrap())
        } else {
            (self.linear(&path(gate), x), self.linear(&path(up), x))
        };
        let active = match self.configuration.activation {
            Activation::Silu => (&gate / (gate.neg().unwrap().exp().unwrap() + 1.0).unwrap()).unwrap(),
            Activation::GeluTanh => {
                let cube = (gate.sqr().unwrap() * &gate).unwrap();
                let inner =
                    ((&gate + (cube * 0.044715).unwrap()).unwrap() * (2.0 / std::f64::consts::PI).sqrt()).unwrap();
                ((&gate * 0.5).unwrap() * (inner.tanh().unwrap() + 1.0).unwrap()).unwrap()
            }
        };
        self.linear(&path(down), &(active * up).unwrap())
    }

    /// The activations of a block, `[tokens, hidden]` each, at the sites in their order; the last one is its output.
    fn block(&self, layer: usize, input: &Tensor) -> [(Site, Tensor); 4] {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let norms = self.configuration.norms;
        let normed = |norm: Option<&str>, x: &Tensor| norm.map_or(x.clone(), |norm| self.norm(&name(norm), x));
        let attention = self.attention(layer, &normed(norms.attention_input, input));
        let scale = f64::from(self.configuration.residual_scale);
        let x = (input + (normed(norms.attention_output, &attention) * scale).unwrap()).unwrap();
        let mlp = self.feed_forward(layer, &normed(norms.feed_forward_input, &x));
        let moved = (normed(norms.feed_forward_output, &mlp) * scale).unwrap();
        [
            (Site::ResidualBefore, input.clone()),
            (Site::AttentionOutput, attention),
            (Site::MlpOutput, mlp),
            (Site::ResidualAfter, (x + moved).unwrap()),
        ]
    }

    /// The activations of every block, in order.
    pub(super) fn blocks(&self, ids: &[u32]) -> Vec<[(Site, Tensor); 4]> {
        let ids = Tensor::new(ids, &Device::Cpu).unwrap();
        let mut x = self.weight("model.embed_tokens.weight").index_select(&ids, 0).unwrap();
        x = (x * f64::from(self.configuration.embedding_scale)).unwrap();
        let run = |layer| {
            let block = self.block(layer, &x);
            x = block[3].1.clone();
            block
        };
        (0..self.configuration.layers).map(run).collect()
    }

    /// Logits `[tokens, vocabulary]`, divided by the temperature.
    pub(super) fn logits(&self, ids: &[u32], temperature: f64) -> Tensor {
        let [.., (_, x)] = self.blocks(ids).pop().unwrap();
        let x = self.norm("model.norm", &x);
        let head = if self.configuration.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
        let head = self.weight(head);
        let logits = (x.matmul(&head.t().unwrap()).unwrap() / f64::from(self.configuration.logit_divisor)).unwrap();
        (cap(logits, self.configuration.logit_soft_cap) / temperature).unwrap()
    }

    /// The taps of one row's targets, in order; `None` without targets.
    pub(super) fn taps(&self, ids: &[u32], marks: &[bool], temperature: f64) -> Option<Taps<Tensor>> {
        let places: Vec<u32> = (1..ids.len()).filter(|at| marks[*at]).map(|at| at as u32 - 1).collect();
        if places.is_empty() {
            return None;
        }
        let chosen: Vec<u32> = places.iter().map(|at| ids[*at as usize + 1]).collect();
        let places = Tensor::new(places.as_slice(), &Device::Cpu).unwrap();
        let logits = self.logits(ids, temperature).index_select(&places, 0).unwrap();
        let all = log_softmax(&logits);
        let chosen = Tensor::new(chosen.as_slice(), &Device::Cpu).unwrap().unsqueeze(1).unwrap();
        let shares = all.exp().unwrap();
        let taps = [
            (Tap::Logprob, all.gather(&chosen, 1).unwrap().squeeze(1).unwrap()),
            (Tap::Entropy, (&shares * &all).unwrap().sum(1).unwrap().neg().unwrap()),
            (Tap::LogSumSquare, shares.sqr().unwrap().sum(1).unwrap().log().unwrap()),
            (Tap::MeanLogit, logits.mean(1).unwrap()),
            (Tap::MeanLogprob, all.mean(1).unwrap()),
        ];
        Some(taps.into_iter().collect())
    }

    /// The gradient of the loss Σ seed · tap for every trained value that has one, by slot name.
    pub(super) fn gradients(&self, rows: &Rows, seeds: &Seeds, temperature: f64) -> HashMap<String, Tensor> {
        let mut total = Tensor::zeros((), DType::F64, &Device::Cpu).unwrap();
        for (row, (ids, marks)) in rows.ids.iter().zip(&rows.targets).enumerate() {
            let Some(taps) = self.taps(ids, marks, temperature) else { continue };
            let places: Vec<u32> = (0..ids.len()).filter(|at| marks[*at]).map(|at| at as u32).collect();
            let places = Tensor::new(places.as_slice(), &Device::Cpu).unwrap();
            for (tap, seed) in seeds.iter() {
                let tap = taps.get(tap).unwrap();
                let seed = seed.get(row).unwrap().index_select(&places, 0).unwrap().to_dtype(DType::F64).unwrap();
                total = (total + (seed * tap).unwrap().sum_all().unwrap()).unwrap();
            }
        }
        self.gradients_of(&total)
    }

    /// The gradient of a loss for every trained value, by slot name; 0 if the loss does not depend on it.
    pub(super) fn gradients_of(&self, loss: &Tensor) -> HashMap<String, Tensor> {
        let store = loss.backward().unwrap();
        let found = |(name, variable): (&String, &Var)| {
            let gradient = store.get(variable.as_tensor()).cloned();
            (name.clone(), gradient.unwrap_or_else(|| variable.zeros_like().unwrap()))
        };
        self.variables.iter().map(found).collect()
    }
}

fn cap(values: Tensor, cap: Option<f32>) -> Tensor {
    match cap.map(f64::from) {
        Some(cap) => ((values / cap).unwrap().tanh().unwrap() * cap).unwrap(),
        None => values,
    }
}

fn log_softmax(logits: &Tensor) -> Tensor {
    let last = logits.rank() - 1;
    let shifted = logits.broadcast_sub(&logits.max_keepdim(last).unwrap().detach()).unwrap();
    let total = shifted.exp().unwrap().sum_keepdim(last).unwrap().log().unwrap();
    shifted.broadcast_sub(&total).unwrap()
}
