//! The mixture of experts in the feed-forward part of a block, and what files call its modules.

/// The experts of a block's feed-forward part (mixture of experts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// The number of experts.
    pub count: usize,
    /// The number of experts that each token runs through.
    pub active: usize,
    /// Width inside an expert.
    pub intermediate: usize,
    /// Whether the weights of a token's experts are divided by their sum.
    pub normalized: bool,
}

/// The names of a mixture of experts within a block: the router is `PARENT.gate`, a matrix of an expert
/// `PARENT.experts.3.MAP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertNames {
    /// The module that holds router and experts.
    pub parent: &'static str,
    /// The gate, up and down projection of an expert, in this order.
    pub maps: [&'static str; 3],
}

impl ExpertNames {
    /// The names of Mixtral.
    pub const MIXTRAL: Self = Self { parent: "block_sparse_moe", maps: ["w1", "w3", "w2"] };
}

impl Default for ExpertNames {
    /// The names of most families.
    fn default() -> Self {
        Self { parent: "mlp", maps: ["gate_proj", "up_proj", "down_proj"] }
    }
}
