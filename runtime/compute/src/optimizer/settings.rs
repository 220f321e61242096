//! Which optimizer updates the parameters, and its hyperparameters.

use std::fmt;

use super::adamw::AdamWSettings;
use super::lion::LionSettings;
use super::muon::MuonSettings;
use super::part::{StateTensor, View, state_bytes};
use super::sgd::SgdSettings;
use crate::error::Result;
use crate::parameters::Slot;

/// The name of an optimizer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay (Loshchilov & Hutter 2019); keeps 8 bytes for each trained number.
    #[default]
    AdamW,
    /// AdamW with moments in 8 bits, in blocks of 256 (Dettmers et al. 2022); keeps 2 bytes for each trained number.
    /// CPU only.
    #[serde(rename = "adamw-8bit")]
    AdamW8Bit,
    /// Steps by the sign of a momentum (Chen et al. 2023); keeps 4 bytes for each trained number. CPU only.
    Lion,
    /// Orthogonal steps for matrices, AdamW for vectors, the embedding and the head (Jordan 2024); keeps 4 bytes for
    /// each number of a matrix. CPU only.
    Muon,
    /// Stochastic gradient descent, with momentum if `momentum` is above 0; keeps 4 bytes for each trained number then,
    /// else none. Weight decay is part of the gradient, as in torch. CPU only.
    Sgd,
}

impl OptimizerKind {
    /// Whether accelerators (CUDA, Metal) have a kernel for it.
    #[must_use]
    pub fn runs_on_accelerators(self) -> bool {
        self == Self::AdamW
    }
}

impl fmt::Display for OptimizerKind {
    /// Writes the name that settings files use, such as `adamw-8bit`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, formatter)
    }
}

/// An update rule with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// AdamW.
    AdamW(AdamWSettings),
    /// AdamW with moments in 8 bits.
    AdamW8Bit(AdamWSettings),
    /// Lion.
    Lion(LionSettings),
    /// Muon.
    Muon(MuonSettings),
    /// Stochastic gradient descent.
    Sgd(SgdSettings),
}

impl UpdateRule {
    /// Whether the update of a number depends on no other number, so that several slots can be updated as one part.
    pub(super) fn is_elementwise(&self) -> bool {
        matches!(self, Self::AdamW(_) | Self::Lion(_) | Self::Sgd(_))
    }

    /// The weight decay.
    fn weight_decay(&self) -> f64 {
        match self {
            Self::AdamW(settings) | Self::AdamW8Bit(settings) => settings.weight_decay,
            Self::Lion(settings) => settings.weight_decay,
            Self::Muon(settings) => settings.adamw.weight_decay,
            Self::Sgd(settings) => settings.weight_decay,
        }
    }

    /// The state tensors for numbers of a shape: `[rows, columns]` of a hidden matrix, `[count]` of anything else.
    pub(super) fn state(&self, shape: &[usize]) -> Vec<StateTensor> {
        let count = shape.iter().product();
        match self {
            Self::AdamW(_) => AdamWSettings::state(count),
            Self::AdamW8Bit(_) => AdamWSettings::state_in_8_bits(count),
            Self::Lion(_) => LionSettings::state(count),
            Self::Muon(_) => MuonSettings::state(shape),
            Self::Sgd(settings) => settings.state(count),
        }
    }

    /// Updates the values and the state of a part of the parameters on the CPU by one step, without clipping.
    /// Afterwards the gradients of the part are unspecified. Fails for a view whose state is not that of
    /// [`state`](Self::state).
    pub(super) fn update(&self, view: &View<'_>) -> Result<()> {
        match self {
            Self::AdamW(settings) => settings.update(view),
            Self::AdamW8Bit(settings) => settings.update_in_8_bits(view),
            Self::Lion(settings) => settings.update(view),
            Self::Muon(settings) => settings.update(view),
            Self::Sgd(settings) => settings.update(view),
        }
    }
}

/// The settings of an optimizer. The default is AdamW with torch's constants and no weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerSettings {
    /// The update rule.
    pub rule: UpdateRule,
    /// The learning rate of the factors B of low-rank adapters, as a multiple of that of all other parameters (LoRA+,
    /// arXiv:2402.12354); finite and above 0. The slots of such factors have names that end in `.lora_B.weight`.
    pub b_rate_ratio: f64,
}

impl Default for OptimizerSettings {
    /// AdamW with torch's constants, no weight decay, and one learning rate for all parameters.
    fn default() -> Self {
        UpdateRule::AdamW(AdamWSettings::default()).into()
    }
}

impl From<UpdateRule> for OptimizerSettings {
    /// One learning rate for all parameters.
    fn from(rule: UpdateRule) -> Self {
        Self { rule, b_rate_ratio: 1.0 }
    }
}

impl OptimizerSettings {
    /// The name of the optimizer.
    #[must_use]
    pub fn kind(&self) -> OptimizerKind {
        match self.rule {
            UpdateRule::AdamW(_) => OptimizerKind::AdamW,
            UpdateRule::AdamW8Bit(_) => OptimizerKind::AdamW8Bit,
            UpdateRule::Lion(_) => OptimizerKind::Lion,
            UpdateRule::Muon(_) => OptimizerKind::Muon,
            UpdateRule::Sgd(_) => OptimizerKind::Sgd,
        }
    }

    /// Bytes of the state for parameters with these slots. Leaves out gaps between the slots on an accelerator.
    #[must_use]
    pub fn state_bytes(&self, slots: &[Slot]) -> u64 {
        state_bytes(self, slots)
    }

    /// Whether every setting is in the range that its field states.
    pub(super) fn is_valid(&self) -> bool {
        let rule = match &self.rule {
            UpdateRule::AdamW(settings) | UpdateRule::AdamW8Bit(settings) => settings.is_valid(),
            UpdateRule::Lion(settings) => settings.is_valid(),
            UpdateRule::Muon(settings) => settings.is_valid(),
            UpdateRule::Sgd(settings) => settings.is_valid(),
        };
        let (decay, ratio) = (self.rule.weight_decay(), self.b_rate_ratio);
        rule && decay >= 0.0 && decay.is_finite() && ratio > 0.0 && ratio.is_finite()
    }
}

impl fmt::Display for OptimizerSettings {
    /// Writes the name and every hyperparameter: `lion, beta1 0.9, beta2 0.99, weight decay 0`; the ratio of the
    /// learning rates only if it is not 1.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let adamw = |settings: &AdamWSettings| {
            let AdamWSettings { beta1, beta2, epsilon, .. } = settings;
            format!("beta1 {beta1}, beta2 {beta2}, epsilon {epsilon:e}")
        };
        let nesterov = |is_nesterov: bool| if is_nesterov { " (Nesterov)" } else { "" };
        let own = match &self.rule {
            UpdateRule::AdamW(settings) | UpdateRule::AdamW8Bit(settings) => adamw(settings),
            UpdateRule::Lion(settings) => format!("beta1 {}, beta2 {}", settings.beta1, settings.beta2),
            UpdateRule::Muon(MuonSettings { momentum, nesterov: variant, adamw: settings }) => {
                format!("momentum {momentum}{}, {}", nesterov(*variant), adamw(settings))
            }
            UpdateRule::Sgd(settings) => format!("momentum {}{}", settings.momentum, nesterov(settings.nesterov)),
        };
        write!(formatter, "{}, {own}, weight decay {}", self.kind(), self.rule.weight_decay())?;
        let ratio = self.b_rate_ratio;
        if ratio == 1.0 { Ok(()) } else { write!(formatter, ", {ratio} times the rate for the factors B") }
    }
}
