//! The linear maps of a block: the names of their modules, and their shapes; and the names of router and experts.
//! Leaves the weights themselves to `weights` and what is trained on them to `adapter`.

use crate::configuration::{Configuration, ExpertNames};

/// A linear map inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// Queries of the attention.
    Query,
    /// Keys of the attention.
    Key,
    /// Values of the attention.
    Value,
    /// Queries, keys and values in one matrix, as Phi-3 stores them.
    QueryKeyValue,
    /// The output projection of the attention.
    AttentionOutput,
    /// The gate projection of the feed-forward part.
    Gate,
    /// The up projection of the feed-forward part, whose output the gate multiplies.
    Up,
    /// Gate and up in one matrix, as Phi-3 and GLM-4 store them.
    GateUp,
    /// The output projection of the feed-forward part.
    Down,
}

impl Site {
    /// The linear maps of each block, in the order of a forward pass: seven, or fewer if projections are fused. In a
    /// model with experts, those of the attention: the matrices of router and experts are no sites.
    #[must_use]
    pub fn all(configuration: &Configuration) -> Vec<Self> {
        let mut all = match configuration.fused_query_key_value {
            true => vec![Self::QueryKeyValue, Self::AttentionOutput],
            false => vec![Self::Query, Self::Key, Self::Value, Self::AttentionOutput],
        };
        if configuration.experts.is_none() {
            all.extend_from_slice(match configuration.fused_gate_up {
                true => &[Self::GateUp, Self::Down],
                false => &[Self::Gate, Self::Up, Self::Down],
            });
        }
        all
    }

    /// The module's path inside its block, as Hugging Face names it: `self_attn.q_proj`.
    #[must_use]
    pub fn module(self) -> &'static str {
        match self {
            Self::Query => "self_attn.q_proj",
            Self::Key => "self_attn.k_proj",
            Self::Value => "self_attn.v_proj",
            Self::QueryKeyValue => "self_attn.qkv_proj",
            Self::AttentionOutput => "self_attn.o_proj",
            Self::Gate => "mlp.gate_proj",
            Self::Up => "mlp.up_proj",
            Self::GateUp => "mlp.gate_up_proj",
            Self::Down => "mlp.down_proj",
        }
    }

    /// The last part of the module's path: `q_proj`.
    #[must_use]
    pub fn short_name(self) -> &'static str {
        let module = self.module();
        module.rsplit('.').next().unwrap_or(module)
    }

    /// The module's full path: `model.layers.0.self_attn.q_proj`.
    #[must_use]
    pub fn path(self, layer: usize) -> String {
        format!("model.layers.{layer}.{}", self.module())
    }

    /// Whether the map has a bias. The configuration decides it for three groups: query, key and value maps, fused or
    /// not; the attention's output projection; and all feed-forward maps.
    #[must_use]
    pub fn has_bias(self, configuration: &Configuration) -> bool {
        match self {
            Self::Query | Self::Key | Self::Value | Self::QueryKeyValue => configuration.attention_bias,
            Self::AttentionOutput => configuration.output_bias,
            Self::Gate | Self::Up | Self::GateUp | Self::Down => configuration.feed_forward_bias,
        }
    }

    /// The shape of the weight, `(out, in)`.
    #[must_use]
    pub fn shape(self, configuration: &Configuration) -> (usize, usize) {
        let queries = configuration.heads * configuration.head_dim;
        let keys = configuration.kv_heads * configuration.head_dim;
        let (hidden, inner) = (configuration.hidden, configuration.intermediate);
        match self {
            Self::Query => (queries, hidden),
            Self::Key | Self::Value => (keys, hidden),
            Self::QueryKeyValue => (queries + 2 * keys, hidden),
            Self::AttentionOutput => (hidden, queries),
            Self::Gate | Self::Up => (inner, hidden),
            Self::GateUp => (2 * inner, hidden),
            Self::Down => (hidden, inner),
        }
    }
}

/// The linear maps of an expert, in the order of a forward pass.
pub(crate) const EXPERT_MAPS: [Site; 3] = [Site::Gate, Site::Up, Site::Down];

impl ExpertNames {
    /// The path of the router inside its block: `mlp.gate`.
    pub(crate) fn router(&self) -> String {
        format!("{}.gate", self.parent)
    }

    /// The paths of the maps of one expert inside its block, in the order of [`EXPERT_MAPS`]:
    /// `mlp.experts.3.gate_proj`.
    pub(crate) fn of_expert(&self, expert: usize) -> [String; 3] {
        self.maps.map(|map| format!("{}.experts.{expert}.{map}", self.parent))
    }
}

/// The index of the expert to which the weight of this Hugging Face name belongs; `None` for another weight.
pub(crate) fn expert_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once(".experts.")?;
    rest.split_once('.')?.0.parse().ok()
}

/// Whether the weight of this Hugging Face name is that of a router.
pub(crate) fn is_router(name: &str) -> bool {
    name.ends_with(".gate.weight")
}
