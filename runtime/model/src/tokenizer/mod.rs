//! Text to token ids and back, exactly as the model's authors defined it.
//!
//! A tokenizer comes from a Hugging Face folder or from a GGUF file; both give the same ids.
//! Chat templates and answer masks are left to [`crate::chat`].

mod byte_level;
mod error;
mod folder;
mod gguf;
mod growth;
mod merges;
mod parts;
mod sentence_piece;
mod special;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod write;
mod write_gguf;

use std::fmt;
use std::ops::Range;
use std::path::Path;

pub use stream::StreamDecoder;

pub(crate) use folder::{object, read_optional};
use growth::{MAX_BYTES, Steps};
use special::Specials;
pub(crate) use special::TURN_ENDS;
use tokenizers::utils::truncation::{TruncationParams, truncate_encodings};
use tokenizers::{Encoding, PostProcessor};
use tunebox_foundation::panics::catch_panic;

use crate::error::Result;
use crate::watchdog::{Mark, OVERHEAD, Work};

/// The most bytes of a text that is encoded; encoding takes some 300 bytes of memory for each of them.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// Turns text into token ids and ids into text.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// How much the steps around the model may lengthen a text or tokens.
    steps: Steps,
    /// Encoding and decoding, for the watchdog: some steps may take far more time than the length of the text explains.
    work: Work,
    /// The ids put before a whole text.
    leading: Vec<u32>,
    /// The ids put after a whole text.
    trailing: Vec<u32>,
    specials: Specials,
    /// The highest id, added tokens included, plus 1; 0 without tokens.
    size: usize,
    /// Bytes of the longest token's spelling.
    longest: usize,
}

/// Token ids, and the bytes of the text that each one stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans {
    /// The token ids, in order.
    pub ids: Vec<u32>,
    /// For each id its bytes in the text. Neighbors touch or overlap, so every byte belongs to a token.
    pub ranges: Vec<Range<usize>>,
}

impl Tokenizer {
    /// Builds the tokenizer from its parts. Computes the growth bounds of its steps, `size` and `longest`, and
    /// registers its encoding and decoding with the watchdog. `leading` and `trailing` are the ids put before and after
    /// a whole text; `file` is the tokenizer's file, for messages. Errors: those of [`Steps::of`], such as an unknown
    /// step.
    fn assemble(
        inner: tokenizers::Tokenizer,
        leading: Vec<u32>,
        trailing: Vec<u32>,
        specials: Specials,
        file: &Path,
    ) -> Result<Self> {
        let steps = Steps::of(&inner).map_err(error::broken)?;
        let vocabulary = inner.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |id| *id as usize + 1);
        let longest = vocabulary.keys().map(String::len).max().unwrap_or(0);
        let work = Work::on_texts("the tokenizer", file);
        Ok(Self { inner, steps, work, leading, trailing, specials, size, longest })
    }

    /// Encodes `text`. Names of special tokens in the text become those tokens. `add_special` also puts the tokenizer's
    /// leading ids (such as a beginning-of-text token) before the result and its trailing ids after it.
    ///
    /// # Errors
    /// When the vocabulary cannot spell the text, or the text is longer than 4 MiB or may exceed 64 MiB in the steps of
    /// this tokenizer.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        let encoding = self.encode_bare(text, false)?;
        if !add_special {
            return Ok(encoding.get_ids().to_vec());
        }

        let mut ids = self.leading.clone();
        ids.extend_from_slice(encoding.get_ids());
        ids.extend_from_slice(&self.trailing);
        Ok(ids)
    }

    /// Encodes the beginning of a text, with the leading special ids and without the trailing ones.
    ///
    /// # Errors
    /// When [`encode`](Self::encode) fails.
    pub fn encode_opening(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.leading.clone();
        ids.extend(self.encode(text, false)?);
        Ok(ids)
    }

    /// The number of special ids put before a whole text.
    pub fn leading_count(&self) -> usize {
        self.leading.len()
    }

    /// Encodes a whole training text with leading and trailing special ids. Adds no trailing ids if the encoded text
    /// already ends with all of them. A text of more than 1 MiB is encoded in parts, which end at line ends.
    ///
    /// # Errors
    /// When [`encode`](Self::encode) fails.
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.leading.clone();
        for part in parts::split_long(text) {
            ids.extend(self.encode(part, false)?);
        }
        if !ids.ends_with(&self.trailing) {
            ids.extend_from_slice(&self.trailing);
        }
        Ok(ids)
    }

    /// Encodes two texts as a pair, with the special ids that the tokenizer puts around and between them. If there are
    /// more than `most` ids, drops ids from the end of the longer text first, then of both. Also returns the type of
    /// each id: 0 or 1, usually the number of its text.
    ///
    /// # Errors
    /// When [`encode`](Self::encode) fails for both texts together, or the special ids alone are more than `most`.
    pub fn encode_pair(&self, first: &str, second: &str, most: usize) -> Result<(Vec<u32>, Vec<u32>)> {
        self.check_length(first.len().saturating_add(second.len()))?;
        let (first, second) = (self.encode_bare(first, false)?, self.encode_bare(second, false)?);
        let added = self.inner.get_post_processor().map_or(0, |processor| processor.added_tokens(true));
        let room = most.checked_sub(added).filter(|room| *room > 0);
        let max_length =
            room.ok_or_else(|| error::encode(format!("{added} special tokens leave no room in {most}")))?;
        let parameters = TruncationParams { max_length, ..TruncationParams::default() };
        let join = || {
            let (first, second) = truncate_encodings(first, Some(second), &parameters)?;
            self.inner.post_process(first, second, true)
        };
        let pair = catch_panic(join).map_err(error::encode)?.map_err(error::encode)?;
        Ok((pair.get_ids().to_vec(), pair.get_type_ids().to_vec()))
    }

    /// Encodes `text` without adding special ids, and gives the byte range of the text that each id stands for. A range
    /// that would begin after the end of the one before it begins at that end instead; the last range ends with the
    /// text. Ranges overlap where tokens share a character.
    ///
    /// # Errors
    /// When [`encode`](Self::encode) fails.
    pub fn encode_spans(&self, text: &str) -> Result<Spans> {
        let encoding = self.encode_bare(text, true)?;

        // Some post-processors cut the spaces off a token's span; a span that begins where the last one
        // ended gives them back. Tokens that share one character keep the whole character each. What a normalizer
        // took from the end belongs to the last token.
        let mut end = 0;
        let mut ranges = Vec::with_capacity(encoding.get_ids().len());
        for &(from, to) in encoding.get_offsets() {
            let start = from.min(end);
            end = to.max(end);
            ranges.push(start..end);
        }
        if let Some(last) = ranges.last_mut() {
            last.end = text.len();
        }
        Ok(Spans { ids: encoding.get_ids().to_vec(), ranges })
    }

    /// Decodes `ids` to text; `skip_special` leaves out the names of special tokens. Skips ids without a token, which
    /// only pad the embedding.
    ///
    /// # Errors
    /// When the decoder cannot put the pieces together, or the text may be longer than 64 MiB.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let most = ids.len().saturating_mul(self.longest + 1);
        self.steps
            .decode
            .check(most)
            .or_else(|_| self.steps.decode.check(self.spelling_bytes(ids)))
            .map_err(error::decode)?;
        let _mark = self.begin_work(ids.len());
        let decoded = catch_panic(|| self.inner.decode(ids, skip_special));
        decoded.map_err(error::decode)?.map_err(error::decode)
    }

    /// An upper bound, in bytes, of the text that [`decode`](Self::decode) returns for any `ids` ids (a count).
    /// Computed from the longest spelling in the vocabulary; at most 64 MiB.
    pub fn most_decoded(&self, ids: usize) -> u64 {
        self.steps.decode.max_bytes(ids.saturating_mul(self.longest + 1)).min(MAX_BYTES)
    }

    /// The total bytes of the spellings of ids, plus 1 for each id. An unknown id has no spelling.
    fn spelling_bytes(&self, ids: &[u32]) -> usize {
        ids.iter().map(|id| 1 + self.inner.id_to_token(*id).map_or(0, |token| token.len())).sum()
    }

    /// Marks an encoding or decoding as under way until the result is dropped, and raises the watchdog's time limit by
    /// `bytes` and a fixed number of bytes. `bytes` is the length of the text, or the number of ids to decode. The
    /// watchdog ends the process if all such work takes longer than the limit.
    fn begin_work(&self, bytes: usize) -> Mark<'_> {
        self.work.add_bytes(bytes as u64 + OVERHEAD);
        self.work.begin()
    }

    /// Encodes a text without leading and trailing ids. With `spans`, also computes the byte range of each token.
    /// Errors: the text is longer than [`MAX_TEXT_BYTES`] or may exceed [`MAX_BYTES`] in the steps, or the library
    /// fails or panics.
    fn encode_bare(&self, text: &str, spans: bool) -> Result<Encoding> {
        self.check_length(text.len())?;
        let _mark = self.begin_work(text.len());
        let encoded =
            catch_panic(|| if spans { self.inner.encode(text, false) } else { self.inner.encode_fast(text, false) });
        encoded.map_err(error::encode)?.map_err(error::encode)
    }

    /// Fails if a text of so many bytes is longer than [`MAX_TEXT_BYTES`], or may exceed [`MAX_BYTES`] in the steps.
    fn check_length(&self, bytes: usize) -> Result<()> {
        if bytes > MAX_TEXT_BYTES {
            return Err(error::encode(format!("it has {bytes} bytes; at most {MAX_TEXT_BYTES} are encoded")));
        }
        self.steps.encode.check(bytes).map_err(error::encode)
    }

    /// The id of the token with exactly this spelling; `None` if there is none.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The spelling of an id in the vocabulary's own alphabet, such as `Ġthe` for byte-level vocabularies; `None` for
    /// an unknown id.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The lowest id of this tokenizer whose spelling in `other` is another, or that `other` does not have; `None` if
    /// there is none.
    pub fn first_difference(&self, other: &Self) -> Option<u32> {
        (0..u32::try_from(self.size).unwrap_or(u32::MAX)).find(|id| self.token(*id) != other.token(*id))
    }

    /// Whether an id is an added token that the tokenizer marks as special: a control token, whose name is not text.
    /// False for unknown ids.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id).is_some_and(|token| token.special)
    }

    /// Whether an id is a token whose name in a text means more than its letters: an end of an answer, or an added
    /// token other than white space, marked as special or not. False for unknown ids.
    pub fn is_control(&self, id: u32) -> bool {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder().get(&id);
        self.eos().contains(&id) || added.is_some_and(|token| !token.content.trim().is_empty())
    }

    /// The beginning-of-text id, if the tokenizer names one.
    pub fn bos(&self) -> Option<u32> {
        self.specials.id("bos_token")
    }

    /// The ids that end an answer, each once, the tokenizer's own end-of-text id first if it has one. May be empty.
    pub fn eos(&self) -> &[u32] {
        &self.specials.eos
    }

    /// The text of the end-of-text token, if the tokenizer names one.
    pub fn eos_text(&self) -> Option<&str> {
        self.specials.name("eos_token")
    }

    /// The padding id, if the tokenizer names one.
    pub fn pad(&self) -> Option<u32> {
        self.specials.id("pad_token")
    }

    /// The special tokens that chat templates know by name, as (role, text): (`bos_token`, `<s>`) and so on.
    pub fn special_tokens(&self) -> impl Iterator<Item = (&str, &str)> {
        self.specials.named.iter().map(|special| (special.role.as_str(), special.text.as_str()))
    }
}

impl fmt::Debug for Tokenizer {
    /// Writes the size of the vocabulary, the ids around a text and the special tokens, not the vocabulary itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("size", &self.size)
            .field("leading", &self.leading)
            .field("trailing", &self.trailing)
            .field("specials", &self.specials)
            .finish_non_exhaustive()
    }
}
