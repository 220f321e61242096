//! Assigns pages of a pool to sequences. Sequences that were forked share the full pages of their common beginning.
//!
//! This file holds page numbers only; `device.rs` holds the memory. A page may be reused as soon as it is released: the
//! device runs its kernels in the order in which they were launched, so earlier ones have read it by then.

use crate::accelerator::extent;
use crate::error::Result;

/// Tokens of a page.
pub(super) const PAGE: usize = 64;

/// The pages of all sequences of a cache.
#[derive(Debug)]
pub(super) struct Pages {
    sequences: Vec<Sequence>,
    /// How many sequences have each page.
    holders: Vec<u32>,
    /// Pages that no sequence has.
    free: Vec<u32>,
    /// Pages that each layer's pool must have room for.
    capacity: usize,
}

/// The pages of one sequence, of which the last may be unfinished.
#[derive(Debug, Clone, Default)]
pub(super) struct Sequence {
    pub(super) pages: Vec<u32>,
    /// In tokens.
    pub(super) length: usize,
}

impl Pages {
    /// Creates `slots` empty sequences without pages.
    pub(super) fn new(slots: usize) -> Self {
        Self { sequences: vec![Sequence::default(); slots], holders: Vec::new(), free: Vec::new(), capacity: 0 }
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.sequences.len()
    }

    /// The number of pages that each layer's pool must have room for. It never shrinks.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The sequence of a slot; `None` if the slot does not exist.
    pub(super) fn sequence(&self, slot: usize) -> Option<&Sequence> {
        self.sequences.get(slot)
    }

    /// Adds `tokens` tokens to the length of a slot's sequence and takes the pages that they need. Panics if the slot
    /// does not exist.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::error::Error::Shape) if a page's number does not fit in 32 bits.
    pub(super) fn grow(&mut self, slot: usize, tokens: usize) -> Result<()> {
        let length = self.sequences[slot].length + tokens;
        while self.sequences[slot].pages.len() < length.div_ceil(PAGE) {
            let page = self.take_page()?;
            self.sequences[slot].pages.push(page);
        }
        self.sequences[slot].length = length;
        Ok(())
    }

    /// Replaces the sequence of slot `to` by the sequence of slot `from`: empties `to`, shares the full pages, and
    /// takes a new page for an unfinished last one. Returns the numbers of the unfinished and of the new page, `[from,
    /// to]`; the caller copies the content. Returns `None` if there is no unfinished page. Does nothing and returns
    /// `None` if both are the same slot. Panics if a slot does not exist.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::error::Error::Shape) if a page's number does not fit in 32 bits; slot `to` is empty
    /// then.
    pub(super) fn fork(&mut self, from: usize, to: usize) -> Result<Option<[u32; 2]>> {
        if from == to {
            return Ok(None);
        }
        self.clear_slot(to);
        let mut forked = self.sequences[from].clone();
        let full = forked.length / PAGE;
        let copied = match forked.pages.get(full).copied() {
            Some(last) => {
                forked.pages[full] = self.take_page()?;
                Some([last, forked.pages[full]])
            }
            None => None,
        };
        forked.pages[..full].iter().for_each(|page| self.holders[*page as usize] += 1);
        self.sequences[to] = forked;
        Ok(copied)
    }

    /// Empties a slot. Its pages become free if no other sequence shares them. Does nothing for a slot that does not
    /// exist.
    pub(super) fn clear_slot(&mut self, slot: usize) {
        let Some(sequence) = self.sequences.get_mut(slot) else { return };
        for page in std::mem::take(sequence).pages {
            let holders = &mut self.holders[page as usize];
            *holders -= 1;
            if *holders == 0 {
                self.free.push(page);
            }
        }
    }

    /// Takes a free page, or adds one, and counts one holder of it. If the added page exceeds the capacity, raises the
    /// capacity by half, at least to the number of pages. [`Error::Shape`](crate::error::Error::Shape) if the page's
    /// number does not fit in 32 bits.
    fn take_page(&mut self) -> Result<u32> {
        if let Some(page) = self.free.pop() {
            self.holders[page as usize] = 1;
            return Ok(page);
        }
        let page = extent(self.holders.len())?;
        self.holders.push(1);
        if self.holders.len() > self.capacity {
            self.capacity = self.holders.len().max(self.capacity + self.capacity / 2);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages_of(pages: &Pages, slot: usize) -> &[u32] {
        &pages.sequence(slot).unwrap().pages
    }

    #[test]
    fn a_sequence_has_as_many_pages_as_its_tokens_fill() {
        let mut pages = Pages::new(2);
        pages.grow(0, PAGE).unwrap();
        assert_eq!(pages_of(&pages, 0), [0]);
        pages.grow(1, 1).unwrap();
        pages.grow(0, 1).unwrap();
        assert_eq!((pages_of(&pages, 0), pages_of(&pages, 1)), (&[0, 2][..], &[1][..]));
        assert!(pages.capacity() >= 3);
    }

    #[test]
    fn full_pages_are_shared_and_the_unfinished_one_is_copied() {
        let mut pages = Pages::new(3);
        pages.grow(0, 2 * PAGE + 5).unwrap();
        assert_eq!(pages.fork(0, 1).unwrap(), Some([2, 3]));
        assert_eq!(pages_of(&pages, 1), [0, 1, 3]);
        pages.grow(1, PAGE).unwrap();
        assert_eq!((pages_of(&pages, 0), pages_of(&pages, 1)), (&[0, 1, 2][..], &[0, 1, 3, 4][..]));
        pages.grow(2, PAGE).unwrap();
        assert_eq!((pages.fork(2, 2).unwrap(), pages_of(&pages, 2)), (None, &[5][..]));
        assert_eq!(pages.fork(2, 0).unwrap(), None, "a full page needs no copy");
        assert_eq!(pages_of(&pages, 0), [5]);
    }

    #[test]
    fn a_page_is_free_when_the_last_that_has_it_goes() {
        let mut pages = Pages::new(3);
        pages.grow(0, PAGE + 1).unwrap();
        pages.fork(0, 1).unwrap();
        pages.clear_slot(0);
        pages.grow(2, PAGE).unwrap();
        assert_eq!((pages_of(&pages, 1), pages_of(&pages, 2)), (&[0, 2][..], &[1][..]));
        pages.clear_slot(1);
        pages.grow(2, 2 * PAGE).unwrap();
        let mut all = pages_of(&pages, 2).to_vec();
        all.sort_unstable();
        assert_eq!((all, pages.sequence(1).unwrap().length), (vec![0, 1, 2], 0));
    }
}
