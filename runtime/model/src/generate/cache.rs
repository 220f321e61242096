//! The forward passes of generation, which fill the cache of keys and values and read from it. A prompt that several
//! completions share is run once.

use tunebox_compute::Tensor;
use tunebox_compute::fused::{self, Indices, KvCache, KvCachePass, Segments};

use super::sequence::Sequence;
use crate::decoder::hook::AnswerMask;
use crate::decoder::network::Network;
use crate::decoder::tables::first_table_row;
use crate::decoder::{Block, stack};
use crate::error::{Error, Result};

/// The most prompt tokens of one pass; a longer prompt has a pass of its own.
const PASS: usize = 4096;

/// Builds all blocks of a network, in order, with rotation tables for sequences of up to `longest` tokens.
/// `answer_mask` says which tokens answer-only patches change. Errors: the deadline has passed, or a weight is missing.
pub(super) fn build_blocks(network: &Network<'_>, longest: usize, answer_mask: &AnswerMask) -> Result<Vec<Block>> {
    let rows = first_table_row(&network.model.configuration, longest) + longest;
    (0..network.model.configuration.layers).map(|layer| network.build_block(layer, rows, answer_mask)).collect()
}

/// Runs the prompts of a batch and fills the cache slots of all sequences, which must be empty. A prompt that adjacent
/// sequences share runs once, in the slot of the first of them, which is then copied to the others. Returns the last
/// block's output for each sequence's last prompt token, `[sequences, hidden]`, in the order of `batch`.
pub(super) fn prefill(
    network: &Network<'_>,
    blocks: &[Block],
    prompts: &[Vec<u32>],
    batch: &[Sequence],
    cache: &mut KvCache,
) -> Result<Tensor> {
    // The first completion of each prompt, in whose slot it runs.
    let mut firsts: Vec<&Sequence> = batch.iter().collect();
    firsts.dedup_by_key(|sequence| sequence.prompt);
    let mut lasts = Vec::with_capacity(firsts.len());
    for group in prompt_groups(&firsts, prompts) {
        lasts.push(run_prompts(network, blocks, &group, 0, cache)?);
    }
    let lasts = fused::concat_rows(&lasts)?;
    let mut row_of = Vec::with_capacity(batch.len());
    for sequence in batch {
        let at = firsts.iter().position(|first| first.prompt == sequence.prompt).unwrap_or(0);
        if firsts[at].slot != sequence.slot {
            cache.fork(firsts[at].slot, sequence.slot)?;
        }
        row_of.push(at as u32);
    }
    Ok(fused::gather_rows(&lasts, &Indices::from(row_of))?)
}

/// The blocks that run single tokens.
pub(super) struct DecodingBlocks {
    /// Those for tokens that the model wrote.
    pub(super) own: Vec<Block>,
    /// Those for tokens of replies, if they differ.
    reply: Option<Vec<Block>>,
}

impl DecodingBlocks {
    /// Builds the blocks of a network for sequences of up to `longest` tokens. `has_replies` says whether sequences may
    /// hold replies of an environment. If they may, and a patch changes answers only, builds a second set of blocks for
    /// tokens of replies, without such patches. Errors: the deadline has passed, or a weight is missing.
    pub(super) fn new(network: &Network<'_>, longest: usize, has_replies: bool) -> Result<Self> {
        let differ = has_replies && network.patches.ask_for_answers();
        let reply = differ.then(|| build_blocks(network, longest, &AnswerMask::None)).transpose()?;
        Ok(Self { own: build_blocks(network, longest, &AnswerMask::All)?, reply })
    }
}

/// Selects the sequences whose tokens are all in the cache, so that their next token can be sampled. `rows` has the
/// last block's output for each active sequence, `[active, hidden]`; returns the rows of the selected sequences, and
/// these sequences, in the order of `active`. If none is selected, returns all of `rows` beside an empty list.
pub(super) fn ready_sequences<'a>(
    rows: &Tensor,
    active: &'a mut [&mut Sequence],
    cache: &KvCache,
) -> Result<(Tensor, Vec<&'a mut Sequence>)> {
    let count = active.len();
    let is_ready = |sequence: &Sequence| sequence.next_input(cache.length(sequence.slot)).is_none();
    let ready = active.iter_mut().zip(0_u32..).filter(|(sequence, _)| is_ready(sequence));
    let (ready, places): (Vec<&mut Sequence>, Vec<u32>) =
        ready.map(|(sequence, place)| (&mut **sequence, place)).unzip();
    if places.len() == count || places.is_empty() {
        return Ok((rows.clone(), ready));
    }
    Ok((fused::gather_rows(rows, &Indices::from(places))?, ready))
}

/// Runs for every active sequence the first token that the cache does not hold yet, and adds its keys and values to the
/// cache. If replies have blocks of their own (patches of answers only), sorts `active` first: sequences at a token of
/// a reply before the others. Returns the last block's output for these tokens, `[sequences, hidden]`, in the order
/// that `active` then has. Errors: a sequence has no such token, or the deadline has passed.
pub(super) fn decode_tokens(
    network: &Network<'_>,
    blocks: &DecodingBlocks,
    active: &mut [&mut Sequence],
    cache: &mut KvCache,
) -> Result<Tensor> {
    let Some(reply) = &blocks.reply else { return decode_step(network, &blocks.own, active, cache) };
    let is_own = |sequence: &Sequence| sequence.is_own(cache.length(sequence.slot));
    active.sort_by_key(|sequence| is_own(sequence));
    let replies = active.partition_point(|sequence| !is_own(sequence));
    let (given, written) = active.split_at(replies);
    let mut parts = Vec::with_capacity(2);
    for (blocks, sequences) in [(reply, given), (&blocks.own, written)] {
        if !sequences.is_empty() {
            parts.push(decode_step(network, blocks, sequences, cache)?);
        }
    }
    Ok(fused::concat_rows(&parts)?)
}

/// Runs the next token of each sequence, the first that the cache does not hold yet, through these blocks, and adds
/// its keys and values to the cache. Returns the last block's output, `[sequences, hidden]`, in the order of
/// `sequences`. Errors: a sequence has no such token, or the deadline has passed.
fn decode_step(
    network: &Network<'_>,
    blocks: &[Block],
    sequences: &[&mut Sequence],
    cache: &mut KvCache,
) -> Result<Tensor> {
    let none = || Error::Argument("a completion went on before its first token".into());
    let id = |sequence: &&mut Sequence| sequence.next_input(cache.length(sequence.slot)).map(|(id, _)| id);
    let ids = sequences.iter().map(id).collect::<Option<Vec<u32>>>().ok_or_else(none)?;
    let row = |length: usize| (first_table_row(&network.model.configuration, length + 1) + length) as u32;
    let positions: Vec<u32> = sequences.iter().map(|sequence| row(cache.length(sequence.slot))).collect();
    let pass = cache.begin(sequences.iter().map(|sequence| (sequence.slot, 1)))?;
    let attend = |cache: &KvCache, layer: usize, [query, ..]: [&Tensor; 3]| {
        Ok(cache.attend(&pass, layer, query, &blocks[layer].attention.shape)?)
    };
    // On a thread of the pool, where the next of a step's hundreds of small products starts without a wake-up call.
    rayon::scope(|_| run_blocks(network, blocks, (ids, positions), (cache, &pass), attend))
}

/// Runs prompts, given as cache slot and token ids; the slots must be empty. Returns the last block's output for each
/// prompt's last token, `[prompts, hidden]`. LongRoPE's short or long factors are chosen as for a sequence `ahead`
/// tokens longer than the prompt.
pub(super) fn run_prompts(
    network: &Network<'_>,
    blocks: &[Block],
    prompts: &[(usize, &[u32])],
    ahead: usize,
    cache: &mut KvCache,
) -> Result<Tensor> {
    let lengths: Vec<usize> = prompts.iter().map(|(_, prompt)| prompt.len()).collect();
    let segments = Segments::new(&lengths);
    let ids: Vec<u32> = prompts.iter().flat_map(|(_, prompt)| prompt.iter().copied()).collect();
    let first = |length: &usize| first_table_row(&network.model.configuration, length + ahead) as u32;
    let positions: Vec<u32> =
        lengths.iter().flat_map(|length| (0..*length as u32).map(|at| first(length) + at)).collect();
    let pass = cache.begin(prompts.iter().map(|(slot, prompt)| (*slot, prompt.len())))?;
    let hidden = run_blocks(network, blocks, (ids, positions), (cache, &pass), |_, layer, [query, key, value]| {
        Ok(fused::attention(query, key, value, &segments, &blocks[layer].attention.shape)?.0)
    })?;
    let lasts: Vec<u32> = segments.ranges().map(|range| range.end as u32 - 1).collect();
    Ok(fused::gather_rows(&hidden, &Indices::from(lasts))?)
}

/// Recomputes the cached keys and values of each sequence whose cache holds exactly as many tokens as LongRoPE's
/// original context, now with the factors for long sequences, since the next token makes the sequence longer than that
/// context. Transformers does so for Phi-3. Does nothing for models without LongRoPE.
pub(super) fn recompute_outgrown(
    network: &Network<'_>,
    prompts: &[Vec<u32>],
    active: &[&mut Sequence],
    cache: &mut KvCache,
) -> Result<()> {
    let Some(most) = network.model.configuration.short_context() else { return Ok(()) };
    let network = Network { decoding: false, ..*network };
    for sequence in active {
        let slot = sequence.slot;
        if cache.length(slot) != most {
            continue;
        }
        let prompt = &prompts[sequence.prompt];
        let ids: Vec<u32> = prompt.iter().chain(&sequence.completion.ids).copied().take(most).collect();
        let answer_mask = AnswerMask::of((0..most).map(|at| sequence.is_own(at)), network.model.weights.device())?;
        let blocks = build_blocks(&network, most + 1, &answer_mask)?;
        cache.clear_slot(slot);
        run_prompts(&network, &blocks, &[(slot, ids.as_slice())], 1, cache)?;
    }
    Ok(())
}

/// Runs tokens through all blocks and stores their keys and values in the cache. `ids` are the token ids and
/// `positions` their rows in the rotation tables; `pass` says which slots of the cache grow by these tokens. `attend`
/// computes attention from the cache, the layer, and queries, keys and values, after the cache has the new keys and
/// values of that layer. Returns the last block's output, `[tokens, hidden]`. Errors: the deadline has passed before a
/// block.
fn run_blocks(
    network: &Network<'_>,
    blocks: &[Block],
    (ids, positions): (Vec<u32>, Vec<u32>),
    (cache, pass): (&mut KvCache, &KvCachePass),
    attend: impl Fn(&KvCache, usize, [&Tensor; 3]) -> Result<Tensor>,
) -> Result<Tensor> {
    let (ids, positions): (Indices, Indices) = (ids.into(), positions.into());
    let mut hidden = stack::embed(network, &ids)?;
    for (layer, block) in blocks.iter().enumerate() {
        network.check_deadline()?;
        hidden = block.input_hooks.forward(hidden)?;
        let attention = &block.attention;
        let projected = attention.project(&hidden, &positions)?;
        let (query, key, value) = (&projected.query.after, &projected.key.after, &projected.value);
        cache.append(pass, layer, key, value, &attention.shape)?;
        let attended = attend(cache, layer, [query, key, value])?;
        let (middle, _) = attention.output.forward(&hidden, &attended)?;
        hidden = block.output_hooks.forward(block.feed_forward.forward(&middle)?.0)?;
    }
    Ok(hidden)
}

/// Groups the prompts of `firsts`, the first sequence of each prompt, in their order, into passes of at most [`PASS`]
/// tokens; a longer prompt is alone. Returns, for each pass, the cache slot and the tokens of each prompt.
fn prompt_groups<'a>(firsts: &[&Sequence], prompts: &'a [Vec<u32>]) -> Vec<Vec<(usize, &'a [u32])>> {
    let mut groups: Vec<Vec<(usize, &[u32])>> = Vec::new();
    let mut tokens = 0;
    for sequence in firsts {
        let prompt = prompts[sequence.prompt].as_slice();
        match groups.last_mut() {
            Some(group) if tokens + prompt.len() <= PASS => group.push((sequence.slot, prompt)),
            _ => {
                groups.push(vec![(sequence.slot, prompt)]);
                tokens = 0;
            }
        }
        tokens += prompt.len();
    }
    groups
}
