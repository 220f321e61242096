//! One named site of a block: the patches that act there, the reader of its activations, and the gradient of what was
//! read.
//!
//! A patch either adds a vector v, x + v, and the gradient passes it unchanged; or it sets the component along a vector
//! r of length 1 to c, x + (c − x·r) r, and the gradient loses its component along r. `stream` defines the patches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tunebox_compute::fused::{self, Indices};
use tunebox_compute::{Device, Tensor};

use crate::error::Result;
use crate::stream::{Patch, Site};

/// Which tokens of a pass belong to answers. Patches with `answers_only` change these alone.
#[derive(Debug, Clone, Default)]
pub(crate) enum AnswerMask {
    /// No token, or no patch needs the mask.
    #[default]
    None,
    /// Every token.
    All,
    /// The tokens with a 1: `[tokens, 1]`, `f32`.
    Tokens(Tensor),
}

impl AnswerMask {
    /// Builds the mask `[tokens, 1]` on a device from one mark per token: 1 where the mark is true, else 0.
    pub(crate) fn of(marks: impl Iterator<Item = bool>, device: &Device) -> Result<Self> {
        let marks: Vec<f32> = marks.map(|mark| f32::from(u8::from(mark))).collect();
        let shape = (marks.len(), 1);
        Ok(Self::Tokens(Tensor::from_vec(marks, shape, device)?))
    }
}

/// One value for each of some layers, at one site.
#[derive(Debug)]
pub(crate) struct AtSite<T> {
    pub(crate) site: Site,
    pub(crate) layers: BTreeMap<usize, Arc<T>>,
}

impl<T> AtSite<T> {
    /// The value of a layer; `None` at another site, or for a layer that has none.
    pub(crate) fn get(&self, layer: usize, site: Site) -> Option<Arc<T>> {
        if site == self.site { self.layers.get(&layer).cloned() } else { None }
    }
}

/// One site of one block, with its patches, its reader and the gradient of what was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiteHooks {
    pub(crate) patches: Vec<Patch>,
    /// The tokens that patches with `answers_only` change.
    pub(crate) answers: AnswerMask,
    pub(crate) reader: Option<Arc<ActivationReader>>,
    /// The gradient that a backward pass adds to that of the activations after the patches.
    pub(crate) gradient: Option<Arc<ActivationGradient>>,
}

impl SiteHooks {
    /// Applies the patches in order to activations `[tokens, hidden]` and returns the result. The reader, if any,
    /// stores the selected tokens of that result.
    pub(crate) fn forward(&self, mut rows: Tensor) -> Result<Tensor> {
        for patch in &self.patches {
            rows = patch.forward(&rows, &self.answers)?;
        }
        if let Some(reader) = &self.reader {
            reader.read(&rows)?;
        }
        Ok(rows)
    }

    /// Converts the gradient with respect to the activations after the patches to the gradient with respect to the
    /// activations before the patches, `[tokens, hidden]`. First adds the gradient of what was read there, if any, then
    /// goes through the patches in reverse order.
    pub(crate) fn backward(&self, mut upstream: Tensor) -> Result<Tensor> {
        if let Some(gradient) = &self.gradient {
            upstream = gradient.add_to(&upstream)?;
        }
        for patch in self.patches.iter().rev() {
            upstream = patch.backward(upstream)?;
        }
        Ok(upstream)
    }
}

impl Patch {
    /// Applies the patch to activations `[tokens, hidden]`: sets the component along the vector if the patch has one,
    /// else adds the vector. An addition with `answers_only` changes only the tokens of the mask, so none for
    /// [`AnswerMask::None`]; every other patch changes all tokens.
    fn forward(&self, rows: &Tensor, answers: &AnswerMask) -> Result<Tensor> {
        Ok(match (self.component, answers) {
            (Some(value), _) => fused::set_component(rows, &self.vector, value)?,
            (None, AnswerMask::None) if self.answers_only => rows.clone(),
            (None, AnswerMask::Tokens(marks)) if self.answers_only => {
                fused::add_vector(rows, &self.vector, Some(marks))?
            }
            (None, _) => fused::add_vector(rows, &self.vector, None)?,
        })
    }

    /// Converts the gradient after the patch to the gradient before it: unchanged if the patch adds a vector, without
    /// the component along the vector if it sets that component.
    fn backward(&self, upstream: Tensor) -> Result<Tensor> {
        match self.component {
            Some(_) => Ok(fused::remove_component(&upstream, &self.vector)?),
            None => Ok(upstream),
        }
    }
}

/// Groups of packed tokens. What is read of a group is the mean of its tokens' activations.
#[derive(Debug)]
pub(crate) struct TokenSelection {
    /// The indices of the packed tokens of all groups, group after group. A token may belong to several groups.
    tokens: Indices,
    /// How many of `tokens` belong to each group, at least one.
    counts: Vec<usize>,
}

impl TokenSelection {
    /// Builds the selection from the indices of the packed tokens of each group, at least one for each.
    pub(crate) fn new(groups: &[Vec<u32>]) -> Self {
        Self { tokens: groups.concat().into(), counts: groups.iter().map(Vec::len).collect() }
    }

    /// Averages the activations of each group's tokens: `width` values for each group, group after group, summed in
    /// `f64`. `selected` holds the activations `[tokens, width]` of the selected tokens; on a device they are copied to
    /// the host first.
    fn means(&self, selected: &Tensor) -> Result<Vec<f32>> {
        let (_, width) = selected.dims2()?;
        let selected = fused::to_host_f32(selected)?;
        let mut selected = selected.chunks_exact(width);
        let mut found = Vec::with_capacity(self.counts.len() * width);
        for count in &self.counts {
            let mut sums = vec![0.0_f64; width];
            for token in selected.by_ref().take(*count) {
                sums.iter_mut().zip(token).for_each(|(sum, value)| *sum += f64::from(*value));
            }
            found.extend(sums.iter().map(|sum| (sum / *count as f64) as f32));
        }
        Ok(found)
    }

    /// Converts the gradient of [`means`](Self::means), `width` values for each group, to that of the activations of
    /// the selected tokens, `[tokens, width]` on the CPU: each token of a group gets an equal share of the group's
    /// gradient.
    fn means_backward(&self, gradient: &[f32], width: usize) -> Result<Tensor> {
        let mut found = Vec::with_capacity(self.tokens.len() * width);
        for (count, group) in self.counts.iter().zip(gradient.chunks_exact(width)) {
            let share: Vec<f32> = group.iter().map(|value| value / *count as f32).collect();
            (0..*count).for_each(|_| found.extend_from_slice(&share));
        }
        Ok(Tensor::from_vec(found, (self.tokens.len(), width), &Device::Cpu)?)
    }
}

/// Reads activations at one site during a pass: the means over groups of packed tokens.
#[derive(Debug)]
pub(crate) struct ActivationReader {
    selection: Arc<TokenSelection>,
    /// What was read last: on the CPU the means; on another device the activations of the selected tokens, so that the
    /// host waits for them once after the pass, not at every block.
    found: Mutex<Option<Tensor>>,
}

impl ActivationReader {
    /// A reader of these tokens that has read nothing yet.
    pub(crate) fn new(selection: &Arc<TokenSelection>) -> Self {
        Self { selection: Arc::clone(selection), found: Mutex::new(None) }
    }

    /// Selects tokens from the activations `rows` `[tokens, hidden]` and stores, in place of what was read before: on
    /// the CPU the means of their groups, on another device their activations.
    fn read(&self, rows: &Tensor) -> Result<()> {
        let mut found = fused::gather_rows(rows, &self.selection.tokens)?;
        if found.device().is_cpu() {
            found = Tensor::new(self.selection.means(&found)?, &Device::Cpu)?;
        }
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(())
    }

    /// Returns and clears the means that were read last, `hidden` values for each group, group after group; empty if
    /// nothing was read since the last call. Waits for a device that is not the CPU.
    pub(crate) fn take(&self) -> Result<Vec<f32>> {
        match self.found.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(Vec::new()),
            Some(means) if means.device().is_cpu() => Ok(means.to_vec1()?),
            Some(tokens) => self.selection.means(&tokens),
        }
    }
}

/// The gradient of a loss with respect to what an [`ActivationReader`] read.
#[derive(Debug)]
pub(crate) struct ActivationGradient {
    selection: Arc<TokenSelection>,
    /// `hidden` values for each group of the selection, group after group.
    of_means: Vec<f32>,
}

impl ActivationGradient {
    /// The gradient of the means of a selection, `hidden` values for each group, group after group.
    pub(crate) fn new(selection: &Arc<TokenSelection>, of_means: Vec<f32>) -> Self {
        Self { selection: Arc::clone(selection), of_means }
    }

    /// Adds the gradient of the activations to `upstream` `[tokens, hidden]`, in the type and on the device of
    /// `upstream`. A token that belongs to several groups gets the sum of their gradients.
    fn add_to(&self, upstream: &Tensor) -> Result<Tensor> {
        let (tokens, width) = upstream.dims2()?;
        let selected = self.selection.means_backward(&self.of_means, width)?;
        let selected = selected.to_dtype(upstream.dtype())?.to_device(upstream.device())?;
        Ok(fused::add(upstream, &fused::scatter_rows(&selected, &self.selection.tokens, tokens)?)?)
    }
}
