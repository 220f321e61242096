//! Packs the tokens of rows one after another for a pass, without padding, and finds the rows' tokens and targets among
//! the packed ones.
//! A pass that scores leaves out rows without a target, and of each row the last target and all tokens after it, which
//! predict no target. Prefixes that several rows share are packed once.

mod parts;
mod prefixes;

use std::ops::Range;

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Indices, Segments};
use tunebox_compute::parameters::TokenParts;

use super::hook::AnswerMask;
use super::network::Network;
use super::tables::first_table_row;
use crate::configuration::Configuration;
use crate::error::{Error, Result};
use crate::rows::Rows;
pub(crate) use parts::{RowParts, divide};
use prefixes::{Piece, Pieces, RowTokens};

/// Packed rows of one pass.
#[derive(Debug)]
pub(crate) struct Packing {
    pub(crate) ids: Indices,
    /// For each packed token: its row in the rotation tables.
    pub(crate) positions: Indices,
    pub(crate) segments: Segments,
    /// For each segment: the number of tokens of a row that it belongs to, those that are not packed included.
    pub(crate) row_lengths: Vec<usize>,
    /// How many rows the rotation tables need.
    pub(crate) table_rows: usize,
    /// For each target: the index of the packed token that predicts it. Rows that share a prefix may share a predictor.
    pub(crate) predictors: Indices,
    /// For each target: its id.
    pub(crate) targets: Indices,
    /// For each target: its index in the `[rows, width]` of the whole batch, in row-major order.
    target_indices: Vec<usize>,
    /// For each packed token: whether it is a target itself.
    answers: Vec<bool>,
    /// Which packed tokens belong to which part of the rows.
    pub(crate) parts: TokenParts,
    /// The number of tokens before the first packed one, in the parts that are not here. It is that of a pass over all
    /// parts only if no prefixes are shared.
    pub(crate) first_token: usize,
}

/// For each row of a slice, and each of its tokens: the index of that token among the packed ones.
pub(crate) type TokenPositions = Vec<Vec<u32>>;

/// Returns, for each row and each of its packed tokens, the index of that token among all packed ones. `ends` holds the
/// index of each row's last piece, `None` for a row without tokens; the row's other pieces are that piece's parent, the
/// parent's parent and so on. `lengths` holds the packed tokens of each row; `segments` are the pieces in their order.
fn find_tokens(pieces: &[Piece], ends: &[Option<usize>], lengths: &[usize], segments: &Segments) -> TokenPositions {
    let starts: Vec<usize> = segments.ranges().map(|range| range.start).collect();
    let of_row = |(end, length): (&Option<usize>, &usize)| {
        let mut positions = vec![0; *length];
        for number in std::iter::successors(*end, |number| pieces[*number].parent) {
            let packed = starts[number] as u32..;
            positions[pieces[number].tokens.clone()].iter_mut().zip(packed).for_each(|(position, at)| *position = at);
        }
        positions
    };
    ends.iter().zip(lengths).map(of_row).collect()
}

impl Packing {
    /// Packs the rows of a slice for a pass that scores their targets: those rows whose parts are computed here, and
    /// of each the first tokens, as many as `lengths` says, which are those of [`Rows::scored_length`]. Fills in
    /// targets and predictors. Ignores a target mark on a row's first token. `share` is that of
    /// [`Packing::of_lengths`].
    ///
    /// # Errors
    /// When a token of the slice is not in the vocabulary, or a row has another number of target marks than of tokens.
    pub(crate) fn of_targets(
        rows: &Rows,
        slice: Range<usize>,
        lengths: &[usize],
        (parts, share): (&RowParts, bool),
        configuration: &Configuration,
    ) -> Result<Self> {
        let (mut packing, token_positions) =
            Self::of_lengths(rows, slice.clone(), lengths, (parts, share), configuration)?;
        let (width, mut predictors, mut targets) = (rows.width(), Vec::new(), Vec::new());
        for number in parts.own_rows() {
            let (row, last) = (slice.start + number, lengths[number]);
            for at in (1..=last).filter(|at| rows.targets[row].get(*at) == Some(&true)) {
                predictors.push(token_positions[number][at - 1]);
                targets.push(rows.ids[row][at]);
                packing.target_indices.push(row * width + at);
            }
        }
        (packing.predictors, packing.targets) = (predictors.into(), targets.into());
        Ok(packing)
    }

    /// Checks that no row has another number of target marks than of tokens, or a token past the vocabulary.
    pub(crate) fn check_rows(rows: &Rows, configuration: &Configuration) -> Result<()> {
        (0..rows.count()).try_for_each(|row| check_row(rows, row, configuration))
    }

    /// Groups the rows of `slice` into parts of enough tokens each, see [`RowParts::cut`], and divides the parts among
    /// ranks: `rank` of `ranks`. A pass runs the first `lengths[i]` tokens of row `slice.start + i`; there is a length
    /// for each row. `share` is that of [`Packing::of_lengths`].
    pub(crate) fn cut(
        rows: &Rows,
        slice: Range<usize>,
        lengths: &[usize],
        share: bool,
        configuration: &Configuration,
        (rank, ranks): (usize, usize),
    ) -> RowParts {
        let tokens: Vec<RowTokens<'_>> = slice
            .zip(lengths)
            .map(|(row, length)| row_tokens(rows, row, (*length).min(rows.ids[row].len()), configuration))
            .collect();
        RowParts::cut(&tokens, share, (rank, ranks))
    }

    /// Packs the rows of a slice for a pass that predicts the token after each of them. Common prefixes are packed
    /// once. The predictors are the last token of each row; there are no targets.
    ///
    /// # Errors
    /// When a row is empty, a token is not in the vocabulary, or a row has another number of target marks than of
    /// tokens.
    pub(crate) fn of_whole_rows(rows: &Rows, slice: Range<usize>, configuration: &Configuration) -> Result<Self> {
        let lengths: Vec<usize> = slice.clone().map(|row| rows.ids[row].len()).collect();
        let parts = (&RowParts::whole(slice.len()), true);
        let (mut packing, token_positions) = Self::of_lengths(rows, slice.clone(), &lengths, parts, configuration)?;
        let last = |(row, tokens): (usize, &Vec<u32>)| {
            let empty = || Error::Argument(format!("row `{row}` has `0` tokens"));
            tokens.last().copied().ok_or_else(empty)
        };
        packing.predictors = slice.zip(&token_positions).map(last).collect::<Result<Vec<u32>>>()?.into();
        Ok(packing)
    }

    /// Packs the first tokens of each row of a slice whose part is here, as many as `lengths` says, at most all, and
    /// leaves predictors and targets empty. `share` packs the common prefixes of each part once, which must not be done
    /// where tokens of different rows need different dropout masks. Also returns the packed index of each of these
    /// tokens; those of rows that are not packed mean nothing.
    ///
    /// # Errors
    /// When a token of the slice is not in the vocabulary, or a row has another number of target marks than of tokens.
    pub(crate) fn of_lengths(
        rows: &Rows,
        slice: Range<usize>,
        lengths: &[usize],
        (parts, share): (&RowParts, bool),
        configuration: &Configuration,
    ) -> Result<(Self, TokenPositions)> {
        slice.clone().try_for_each(|row| check_row(rows, row, configuration))?;
        let first = slice.start;
        let tokens: Vec<RowTokens<'_>> =
            slice.zip(lengths).map(|(row, length)| row_tokens(rows, row, *length, configuration)).collect();
        let mut found = Pieces { pieces: Vec::new(), ends: vec![None; tokens.len()] };
        let part_tokens: Vec<usize> = parts.rows[parts.local_parts()]
            .iter()
            .map(|part| {
                let of_part: Vec<RowTokens<'_>> = part.iter().map(|row| tokens[*row]).collect();
                found.append(if share { Pieces::shared(&of_part) } else { Pieces::unshared(&of_part) }, part)
            })
            .collect();
        let Pieces { pieces, ends } = found;
        let sizes: Vec<(usize, Option<usize>)> =
            pieces.iter().map(|piece| (piece.tokens.len(), piece.parent)).collect();
        let segments = Segments::branching(&sizes)?;
        let cut = |piece: &Piece| &tokens[piece.row].ids[piece.tokens.clone()];
        let ids: Vec<u32> = pieces.iter().flat_map(cut).copied().collect();
        let cut = |piece: &Piece| &tokens[piece.row].marks[piece.tokens.clone()];
        let answers = pieces.iter().flat_map(cut).copied().collect();
        let token_positions = find_tokens(&pieces, &ends, lengths, &segments);
        let mut positions = segments.positions()?;
        for (piece, range) in pieces.iter().zip(segments.ranges()) {
            let first = tokens[piece.row].first_row as u32;
            positions[range].iter_mut().for_each(|position| *position += first);
        }
        let packing = Self {
            ids: ids.into(),
            positions: positions.into(),
            segments,
            row_lengths: pieces.iter().map(|piece| rows.ids[first + piece.row].len()).collect(),
            table_rows: tokens.iter().map(|row| row.first_row + row.ids.len()).max().unwrap_or(0),
            predictors: Indices::default(),
            targets: Indices::default(),
            target_indices: Vec::new(),
            answers,
            parts: TokenParts::new(parts.count(), parts.local_parts().start, &part_tokens),
            first_token: parts.first_token(),
        };
        Ok((packing, token_positions))
    }

    /// An upper bound of the tokens that row `row` adds to a pass whose last row is `row` − 1: the row's length, less,
    /// with `share`, the length of the prefix that it has in common with row `row` − 1. An earlier row may share more.
    pub(crate) fn added_tokens(rows: &Rows, row: usize, share: bool, configuration: &Configuration) -> usize {
        let tokens = |row: usize| row_tokens(rows, row, rows.ids[row].len(), configuration);
        let own = tokens(row);
        let common = row.checked_sub(1).filter(|_| share).map_or(0, |before| own.common(&tokens(before), 0));
        own.ids.len() - common
    }

    /// Builds the mask of the packed tokens that are targets themselves, on the model's device. Returns
    /// [`AnswerMask::None`] if no active patch is limited to answers, or no token is packed.
    pub(crate) fn answer_mask(&self, network: &Network<'_>) -> Result<AnswerMask> {
        if !network.patches.ask_for_answers() || self.answers.is_empty() {
            return Ok(AnswerMask::None);
        }
        AnswerMask::of(self.answers.iter().copied(), network.model.weights.device())
    }

    /// Whether the packing has no targets, so that a pass over it computes no taps.
    pub(crate) fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Writes one value per target into `all`, the batch's `[rows, width]` in row-major order. Leaves other elements as
    /// they are.
    pub(crate) fn scatter(&self, values: &[f32], all: &mut [f32]) {
        for (place, value) in self.target_indices.iter().zip(values) {
            all[*place] = *value;
        }
    }

    /// The values at the targets of `all`, the batch's `[rows, width]` in row-major order.
    pub(crate) fn gather(&self, all: &[f32]) -> Vec<f32> {
        self.target_indices.iter().map(|place| all[*place]).collect()
    }

    /// Selects the hidden states that predict each target, `[targets, hidden]`, from those of all packed tokens,
    /// `[tokens, hidden]`; returns `hidden` itself if they are all of it, in order.
    pub(crate) fn select_predictors(&self, hidden: &Tensor) -> Result<Tensor> {
        if self.selects_every_token() {
            return Ok(hidden.clone());
        }
        Ok(fused::gather_rows(hidden, &self.predictors)?)
    }

    /// The gradients of all packed tokens, `[tokens, hidden]`, from those of the predictors, `[targets, hidden]`.
    /// Tokens that predict nothing get 0, tokens that predict several targets the sum.
    pub(crate) fn scatter_gradients(&self, selected: &Tensor) -> Result<Tensor> {
        if self.selects_every_token() {
            return Ok(selected.clone());
        }
        Ok(fused::scatter_rows(selected, &self.predictors, self.ids.len())?)
    }

    /// Whether the predictors are all packed tokens, each once and in order, so that selecting them changes nothing.
    fn selects_every_token(&self) -> bool {
        self.predictors.len() == self.ids.len() && self.predictors.iter().zip(0_u32..).all(|(token, at)| *token == at)
    }
}

/// Checks that a row has as many target marks as tokens, and no token past the vocabulary.
fn check_row(rows: &Rows, row: usize, configuration: &Configuration) -> Result<()> {
    let (tokens, marks) = (rows.ids[row].len(), rows.targets[row].len());
    if tokens != marks {
        return Err(Error::Argument(format!("row `{row}` has `{tokens}` tokens but `{marks}` target marks")));
    }
    configuration.check_tokens(&format!("row `{row}`"), &rows.ids[row])
}

/// The first `length` tokens of a row and their target marks, with the first token's row in the rotation tables, which
/// depends on the length of the whole row.
fn row_tokens<'a>(rows: &'a Rows, row: usize, length: usize, configuration: &Configuration) -> RowTokens<'a> {
    let (ids, marks) = (&rows.ids[row], &rows.targets[row]);
    RowTokens { ids: &ids[..length], marks: &marks[..length], first_row: first_table_row(configuration, ids.len()) }
}
