//! A decoder of one of our families with one row of weights, `score.weight`, in the place of its output head.

use std::sync::Arc;
use std::time::Instant;

use tunebox_compute::precision::{Compute, PrecisionRequest};
use tunebox_compute::{DType, Device};

use super::tensors::check_finite;
use crate::configuration::Configuration;
use crate::decoder::network::Network;
use crate::decoder::packing::Packing;
use crate::decoder::{Recompute, stack};
use crate::error::{Error, Result};
use crate::families;
use crate::model::Model;
use crate::policy::{Policy, PolicySettings, View};
use crate::rows::Rows;
use crate::source::Source;
use crate::weights::{Weights, safetensors};

/// The name of the classifier's weight.
const SCORE: &str = "score.weight";

/// A decoder with a classification head.
pub(super) struct Decoder {
    policy: Policy,
    /// The classifier's row, as long as the hidden width.
    score: Vec<f32>,
}

/// The names and shapes of the weights.
pub(super) fn weight_shapes(configuration: &Configuration) -> Vec<(String, Vec<usize>)> {
    let mut list = families::weight_shapes(configuration);
    list.push((SCORE.into(), vec![1, configuration.hidden]));
    list
}

impl Decoder {
    /// Reads the weights onto a device. `configuration` has a tied head, so that none is looked for. Errors: a weight
    /// is missing, of another shape or in a format that is not read, or the classifier's is not finite.
    pub(super) fn open(
        configuration: Configuration,
        source: &Source,
        device: &Device,
        compute: Compute,
    ) -> Result<Self> {
        let (folder, hidden) = (source.path(), configuration.hidden);
        let score = safetensors::locate(source.weight_files())?.remove(SCORE);
        let score = score.ok_or_else(|| Error::missing(format!("tensor `{SCORE}`"), folder))?;
        if score.shape != [1, hidden] {
            return Err(Error::tensor_shape(SCORE, &[1, hidden], &score.shape, &score.path));
        }
        let row = score.read_f32()?;
        check_finite(SCORE, &row, &score.path)?;
        let weights = Weights::from_folder(folder, source.weight_files(), &configuration, device)?;
        let weights = weights.with_precision(PrecisionRequest { compute, ..PrecisionRequest::default() })?;
        weights.load()?;
        let model = Arc::new(Model::from_parts(source.name(), configuration, weights));
        Ok(Self { policy: Policy::open(model, None, PolicySettings::default())?, score: row })
    }

    /// Computes the logit of a text from its token ids: the product of the classifier's row and the hidden state of the
    /// last token that is no padding token (the first token, if all are), after the last norm. Errors: a token is not
    /// in the vocabulary, or `deadline` has passed.
    pub(super) fn logit(&self, mut ids: Vec<u32>, deadline: Option<Instant>) -> Result<f32> {
        let configuration = &self.policy.model().configuration;
        // As in transformers, which takes every token with the padding id for padding.
        while ids.len() > 1 && configuration.pad.is_some() && ids.last().copied() == configuration.pad {
            ids.pop();
        }
        let length = ids.len();
        let rows = Rows::new(vec![ids], vec![vec![false; length]])?;
        let packing = Packing::of_whole_rows(&rows, 0..1, configuration)?;
        let network = Network { deadline, ..self.policy.network(&View::Policy)? };
        let last = packing.select_predictors(&stack::forward(&network, &packing)?)?;
        let (normed, _) = network.build_norm("model.norm.weight")?.forward(&last)?;
        let normed: Vec<f32> = normed.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        let product: f64 = normed.iter().zip(&self.score).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum();
        Ok(product as f32)
    }

    /// Estimates the bytes of the model and of a pass over `tokens` tokens.
    pub(super) fn bytes(&self, tokens: u64) -> u64 {
        let pass = self.policy.pass_memory(tokens, tokens, Recompute::None);
        self.policy.model().weights.bytes() + pass.scratch
    }
}
