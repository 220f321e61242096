//! Where a backward pass adds the gradients of the trained parameters, and in which order it adds up the tokens.
//!
//! The tokens of a pass are cut into parts. The gradient of each part is computed alone, and the parts are added up
//! along a binary tree that follows from their number only. So the sum has the same bits if the parts are computed by
//! several processes, each of which has some consecutive parts.

use std::ops::Range;

use candle_core::Tensor;

use super::flat::update_pairs;
use super::{Parameters, update_numbers, zeros};
use crate::error::{Error, Result};
use crate::fused::linear_weight_gradient;

/// The parts into which the tokens of a batch are cut, of which this process computes some consecutive ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenParts {
    /// The number of parts of the whole batch.
    count: usize,
    /// The index of the first part of this process.
    first: usize,
    /// The tokens of each part of this process, in order and without gaps, from token 0.
    tokens: Vec<Range<usize>>,
}

impl TokenParts {
    /// Describes the parts of this process: consecutive ones of a batch of `count` parts, from index `first` on.
    /// `lengths` has the number of tokens of each. Does not check that these parts end before `count`.
    #[must_use]
    pub fn new(count: usize, first: usize, lengths: &[usize]) -> Self {
        let end = lengths.iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        let tokens = end.zip(lengths).map(|(end, length)| end - length..end).collect();
        Self { count, first, tokens }
    }

    /// Describes a batch of `tokens` tokens that is one part, of this process.
    #[must_use]
    pub fn whole(tokens: usize) -> Self {
        Self::new(1, 0, &[tokens])
    }

    /// The indices of the parts of this process, among all parts of the batch.
    #[must_use]
    pub fn local_parts(&self) -> Range<usize> {
        self.first..self.first + self.tokens.len()
    }

    /// Returns the largest subtrees whose parts are all in `own`, in order, each as the range of its parts. The tree is
    /// over `count` parts; a node over several parts splits into two halves, of which the first may be larger by one.
    #[must_use]
    pub fn subtrees(count: usize, own: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        collect_subtrees(0..count, own, &mut found);
        found
    }
}

/// Appends to `found`, in order, the largest subtrees of the tree over the parts `tree` whose parts are all in `own`.
fn collect_subtrees(tree: Range<usize>, own: &Range<usize>, found: &mut Vec<Range<usize>>) {
    if tree.is_empty() || tree.end <= own.start || own.end <= tree.start {
        return;
    }
    if own.start <= tree.start && tree.end <= own.end {
        found.push(tree);
        return;
    }
    let middle = split_point(&tree);
    collect_subtrees(tree.start..middle, own, found);
    collect_subtrees(middle..tree.end, own, found);
}

/// Returns the index of the first part in the second half of `parts`, which are more than one: where a tree over them
/// splits. The first half is larger if the number of parts is odd.
fn split_point(parts: &Range<usize>) -> usize {
    parts.start + parts.len().div_ceil(2)
}

/// Returns the sum of `leaf(part)` over parts, at least one, along their tree. Calls `leaf` once for each part, in
/// order. Adds in place to the tensors that `leaf` returned, so these must be contiguous f32 on the CPU with storages
/// of their own. A single part is returned as it is.
fn sum_tree(parts: Range<usize>, leaf: &mut impl FnMut(usize) -> Result<Tensor>) -> Result<Tensor> {
    if parts.len() <= 1 {
        return leaf(parts.start);
    }
    let middle = split_point(&parts);
    let left = sum_tree(parts.start..middle, leaf)?;
    let right = sum_tree(middle..parts.end, leaf)?;
    update_pairs(&left, &right, |to, from| *to += from)?;
    Ok(left)
}

/// Where a backward pass adds gradients: the gradient buffer of parameters, or one buffer for each of the
/// [`TokenParts::subtrees`], which [`Parameters::add_subtrees`] joins with those of other processes.
#[derive(Debug)]
pub struct GradientSums<'a> {
    parameters: &'a Parameters,
    parts: TokenParts,
    /// The buffers; `None` to add to the gradient buffer of the parameters.
    subtrees: Option<Vec<(Range<usize>, Tensor)>>,
}

impl<'a> GradientSums<'a> {
    /// Creates sums that are added to the gradient buffer of the parameters. `parts` must be all parts of the batch, at
    /// least one.
    ///
    /// # Errors
    /// [`Error::Argument`] if parts of the batch are missing, or for more than one part on an accelerator.
    pub fn new(parameters: &'a Parameters, parts: TokenParts) -> Result<Self> {
        if parts.count == 0 || parts.tokens.len() != parts.count {
            return Err(Error::argument("some parts of the batch are missing"));
        }
        if parts.count > 1 && parameters.accelerator.is_some() {
            return Err(Error::argument("on an accelerator the tokens of a pass are one part"));
        }
        Ok(Self { parameters, parts, subtrees: None })
    }

    /// Creates sums in new buffers of 0, one for each of the [`TokenParts::subtrees`] of `parts`, which may be some of
    /// the parts of the batch. The gradient buffer of the parameters is not changed.
    ///
    /// # Errors
    /// [`Error::Argument`] for parameters on an accelerator; also when there is no memory for the buffers.
    pub fn in_subtrees(parameters: &'a Parameters, parts: TokenParts) -> Result<Self> {
        if parameters.accelerator.is_some() {
            return Err(Error::argument("gradients on an accelerator are not divided among processes"));
        }
        let zeros = |parts| Ok((parts, zeros(parameters.layout.size, parameters.device())?));
        let subtrees = TokenParts::subtrees(parts.count, &parts.local_parts()).into_iter().map(zeros);
        let subtrees = Some(subtrees.collect::<Result<_>>()?);
        Ok(Self { parameters, parts, subtrees })
    }

    /// Adds `gradient`, which was computed for the whole batch at once, to the gradient of the slot number `index`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the tokens are in more than one part or the sums are in subtrees; those of
    /// [`Parameters::accumulate`].
    pub fn accumulate(&self, index: usize, gradient: &Tensor) -> Result<()> {
        if self.parts.count > 1 || self.subtrees.is_some() {
            return Err(Error::argument("this gradient is not summed in parts"));
        }
        self.parameters.accumulate(index, gradient)
    }

    /// Adds the sum of `gradient(tokens)` over the parts to the gradient of the slot number `index`. `gradient` gets
    /// the tokens of one part and returns their gradient in the slot's shape. With several parts, it must return
    /// contiguous f32 in a new storage each time, since the sums are computed in place. In subtrees, does nothing if
    /// this process has no part.
    ///
    /// # Errors
    /// Those of `gradient` and of [`Parameters::accumulate`].
    pub fn accumulate_parts(&self, index: usize, gradient: impl Fn(Range<usize>) -> Result<Tensor>) -> Result<()> {
        let mut leaf = |part: usize| gradient(self.parts.tokens[part - self.parts.first].clone());
        let Some(subtrees) = &self.subtrees else {
            return self.parameters.accumulate(index, &sum_tree(self.parts.local_parts(), &mut leaf)?);
        };
        for (parts, buffer) in subtrees {
            let sum = self.parameters.fit_to_slot(index, &sum_tree(parts.clone(), &mut leaf)?)?;
            update_pairs(&self.parameters.view(buffer, index)?, &sum, |to, from| *to += from)?;
        }
        Ok(())
    }

    /// Adds `factor · leftᵀ·right` to the gradient of the slot number `index`, a matrix: `left` is `[tokens, rows]`,
    /// `right` is `[tokens, columns]`.
    ///
    /// # Errors
    /// Those of [`Parameters::accumulate_product`].
    pub fn accumulate_product(&self, index: usize, factor: f32, left: &Tensor, right: &Tensor) -> Result<()> {
        if self.parts.count == 1 && self.subtrees.is_none() {
            return self.parameters.accumulate_product(index, factor, left, right);
        }
        self.accumulate_parts(index, |tokens| {
            let rows = |tensor: &Tensor| tensor.narrow(0, tokens.start, tokens.len());
            linear_weight_gradient(factor, &rows(left)?, &rows(right)?)
        })
    }

    /// Returns the sums of the subtrees of this process, each as (its parts, a flat gradient `[flat_len]`). Empty if
    /// the sums went to the gradient buffer of the parameters.
    #[must_use]
    pub fn into_subtrees(self) -> Vec<(Range<usize>, Tensor)> {
        self.subtrees.unwrap_or_default()
    }
}

impl Parameters {
    /// The number of f32 numbers in the flat buffers, gaps included.
    #[must_use]
    pub fn flat_len(&self) -> usize {
        self.layout.size
    }

    /// Adds the sum of all parts of a batch to the flat gradient from number `start` on, on the CPU. `subtrees` gives
    /// the sums of subtrees that together hold the `count` parts, in order, each with as many numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] if the subtrees do not make up the tree or differ in length, [`Error::Candle`] if they are
    /// longer than the gradient from `start` on, or for parameters on an accelerator. The gradient does not change
    /// then.
    pub fn add_subtrees(&self, start: usize, count: usize, subtrees: &[(Range<usize>, Vec<f32>)]) -> Result<()> {
        let mut rest = subtrees;
        let sum = join_subtrees(0..count, &mut rest).filter(|_| rest.is_empty());
        let sum = sum.ok_or_else(|| Error::argument("the sums of subtrees do not make up the batch"))?;
        let slots = self.gradients.narrow(0, start, sum.len())?;
        update_numbers(&slots, |numbers: &mut [f32]| add_numbers(numbers, &sum))
    }
}

/// Adds `from` to `to`, number by number.
fn add_numbers(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// Returns the sum over the parts `parts` from the sums of subtrees at the beginning of `subtrees`, and advances that
/// slice past them. `None` if the subtrees there do not make up the parts, or differ in length.
fn join_subtrees(parts: Range<usize>, subtrees: &mut &[(Range<usize>, Vec<f32>)]) -> Option<Vec<f32>> {
    let (first, rest) = subtrees.split_first()?;
    if first.0 == parts {
        *subtrees = rest;
        return Some(first.1.clone());
    }
    if parts.len() <= 1 {
        return None;
    }
    let middle = split_point(&parts);
    let mut left = join_subtrees(parts.start..middle, subtrees)?;
    let right = join_subtrees(middle..parts.end, subtrees)?;
    if left.len() != right.len() {
        return None;
    }
    add_numbers(&mut left, &right);
    Some(left)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    /// Numbers of which sums depend on their order.
    fn numbers(shape: (usize, usize), seed: usize) -> Tensor {
        let count = shape.0 * shape.1;
        let value = |at: usize| ((at * 7919 + seed * 104_729) % 1000) as f32 / 37.0 - 13.0;
        Tensor::from_vec((0..count).map(value).collect::<Vec<f32>>(), shape, &Device::Cpu).unwrap()
    }

    fn parameters() -> Parameters {
        let list = vec![("one".into(), vec![3, 5]), ("other".into(), vec![4])];
        let parameters = Parameters::new(list, &Device::Cpu).unwrap();
        parameters.accumulate(0, &numbers((3, 5), 3)).unwrap();
        parameters
    }

    const LENGTHS: [usize; 7] = [5, 1, 9, 30, 2, 8, 17];

    /// Accumulates the gradients of some parts and returns the sums.
    fn accumulate(sums: &GradientSums<'_>, tokens: Range<usize>) {
        let rows = |width, seed| numbers((72, width), seed).narrow(0, tokens.start, tokens.len()).unwrap();
        sums.accumulate_product(0, 0.7, &rows(3, 1), &rows(5, 2)).unwrap();
        let columns = rows(4, 5);
        sums.accumulate_parts(1, |tokens| Ok(columns.narrow(0, tokens.start, tokens.len())?.sum(0)?)).unwrap();
    }

    fn bits(parameters: &Parameters) -> Vec<u32> {
        parameters.gradients().to_vec1::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn the_sum_has_the_same_bits_in_one_process_and_in_several() {
        let together = parameters();
        accumulate(&GradientSums::new(&together, TokenParts::new(7, 0, &LENGTHS)).unwrap(), 0..72);
        for cuts in [vec![0, 7], vec![0, 3, 7], vec![0, 2, 4, 7], vec![0, 1, 1, 5, 7], vec![0, 1, 2, 3, 4, 5, 6, 7]] {
            let apart = parameters();
            let mut subtrees = Vec::new();
            for own in cuts.windows(2) {
                let (first, lengths) = (own[0], &LENGTHS[own[0]..own[1]]);
                let begin = LENGTHS[..first].iter().sum::<usize>();
                let sums = GradientSums::in_subtrees(&apart, TokenParts::new(7, first, lengths)).unwrap();
                accumulate(&sums, begin..begin + lengths.iter().sum::<usize>());
                subtrees.extend(sums.into_subtrees());
            }
            let numbers = |(parts, flat): (Range<usize>, Tensor)| (parts, flat.to_vec1::<f32>().unwrap());
            let subtrees: Vec<_> = subtrees.into_iter().map(numbers).collect();
            for start in [0, 8, 16] {
                let end = (start + 8).min(apart.flat_len());
                let part = |(parts, all): &(Range<usize>, Vec<f32>)| (parts.clone(), all[start..end].to_vec());
                apart.add_subtrees(start, 7, &subtrees.iter().map(part).collect::<Vec<_>>()).unwrap();
            }
            assert_eq!(bits(&together), bits(&apart), "{cuts:?}");
        }
    }

    #[test]
    fn the_order_of_the_sum_is_that_of_the_tree() {
        let parameters = parameters();
        let before = parameters.gradient(1).unwrap().to_vec1::<f32>().unwrap();
        let sums = GradientSums::new(&parameters, TokenParts::new(3, 0, &[1, 1, 1])).unwrap();
        let values = [1e8_f32, 1.0, -1e8];
        let value =
            |tokens: Range<usize>| Ok((Tensor::ones(4, DType::F32, &Device::Cpu)? * f64::from(values[tokens.start]))?);
        sums.accumulate_parts(1, value).unwrap();
        assert_eq!(before, [0.0; 4]);
        assert_eq!(parameters.gradient(1).unwrap().to_vec1::<f32>().unwrap(), [(1e8_f32 + 1.0) + -1e8; 4]);
    }

    #[test]
    fn subtrees_that_are_not_whole_are_refused() {
        let parameters = parameters();
        let subtree = |parts: Range<usize>, length| (parts, vec![1.0; length]);
        for wrong in [
            vec![subtree(0..1, 4)],
            vec![subtree(0..2, 4)],
            vec![subtree(0..2, 4), subtree(2..3, 3)],
            vec![subtree(0..3, 4), subtree(3..4, 4)],
            vec![subtree(0..3, 400)],
            vec![],
        ] {
            assert!(parameters.add_subtrees(0, 3, &wrong).is_err(), "{wrong:?}");
        }
        parameters.add_subtrees(0, 3, &[subtree(0..2, 4), subtree(2..3, 4)]).unwrap();
    }

    #[test]
    fn a_gradient_that_is_not_a_sum_over_tokens_needs_one_part() {
        let parameters = parameters();
        let sums = GradientSums::new(&parameters, TokenParts::new(2, 0, &[1, 1])).unwrap();
        assert!(sums.accumulate(1, &Tensor::ones(4, DType::F32, &Device::Cpu).unwrap()).is_err());
    }
}
