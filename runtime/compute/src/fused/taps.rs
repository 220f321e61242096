//! The names of the per-token outputs (taps) of the output head, with a set of them and a map from them.

/// A per-token output of the language-model head.
///
/// The order is that of the flags in `wit/model.wit` and of the output arguments of the kernel `head_finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// ln p(target). Always computed.
    Logprob,
    /// The entropy −Σ p·ln p of the next-token distribution, in nats.
    Entropy,
    /// ln Σ p².
    LogSumSquare,
    /// The mean logit over the vocabulary.
    MeanLogit,
    /// The mean log-probability over the vocabulary.
    MeanLogprob,
    /// 1 if no token is more likely than the target, else 0.
    TopOne,
    /// The divergence of the next-token distribution to that of another head; see
    /// [`head_divergence`](super::head_divergence).
    Divergence,
}

impl Tap {
    /// Every tap, in order.
    pub const ALL: [Self; 7] = [
        Self::Logprob,
        Self::Entropy,
        Self::LogSumSquare,
        Self::MeanLogit,
        Self::MeanLogprob,
        Self::TopOne,
        Self::Divergence,
    ];

    /// The tap's name in `wit/model.wit`, such as `log-sum-square`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logprob => "logprob",
            Self::Entropy => "entropy",
            Self::LogSumSquare => "log-sum-square",
            Self::MeanLogit => "mean-logit",
            Self::MeanLogprob => "mean-logprob",
            Self::TopOne => "top-one",
            Self::Divergence => "divergence",
        }
    }

    /// Whether a loss may depend on the tap, as a backward pass takes a gradient by it: the log-probability, the
    /// entropy, the mean log-probability and the divergence.
    #[must_use]
    pub const fn is_differentiable(self) -> bool {
        matches!(self, Self::Logprob | Self::Entropy | Self::MeanLogprob | Self::Divergence)
    }

    /// Whether the tap changes in steps only, so that its gradient is 0 wherever it has one: [`Tap::TopOne`] alone.
    #[must_use]
    pub const fn is_stepwise(self) -> bool {
        matches!(self, Self::TopOne)
    }
}

/// A set of taps. [`Tap::Logprob`] is a member of every set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapSet(u8);

impl Default for TapSet {
    /// The log-probability alone.
    fn default() -> Self {
        Self::of(&[])
    }
}

impl TapSet {
    /// The taps of one distribution: all but the divergence, which needs two.
    pub const OF_ONE_HEAD: Self = Self::of(Tap::ALL.split_at(Tap::Divergence as usize).0);

    /// Makes the set of these taps and the log-probability, which is in every set.
    #[must_use]
    pub const fn of(taps: &[Tap]) -> Self {
        let mut bits = 1 << Tap::Logprob as u8;
        let mut next = 0;
        while next < taps.len() {
            bits |= 1 << taps[next] as u8;
            next += 1;
        }
        Self(bits)
    }

    /// The set without the divergence, which needs two heads.
    #[must_use]
    pub const fn of_one_head(self) -> Self {
        Self(self.0 & Self::OF_ONE_HEAD.0)
    }

    /// Whether the tap is in the set.
    #[must_use]
    pub const fn contains(self, tap: Tap) -> bool {
        self.0 >> tap as u8 & 1 == 1
    }

    /// The taps of the set, in the order of [`Tap::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Tap> {
        Tap::ALL.into_iter().filter(move |tap| self.contains(*tap))
    }
}

impl FromIterator<Tap> for TapSet {
    /// The set of these taps and the log-probability.
    fn from_iter<I: IntoIterator<Item = Tap>>(taps: I) -> Self {
        taps.into_iter().fold(Self::default(), |set, tap| Self(set.0 | Self::of(&[tap]).0))
    }
}

/// A map from taps to values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taps<T>([Option<T>; Tap::ALL.len()]);

impl<T> Default for Taps<T> {
    /// No value for any tap.
    fn default() -> Self {
        Self([const { None }; Tap::ALL.len()])
    }
}

impl<T> Taps<T> {
    /// The value of a tap; `None` if it has none.
    #[must_use]
    pub fn get(&self, tap: Tap) -> Option<&T> {
        self.0[tap as usize].as_ref()
    }

    /// Sets the value of a tap; drops the value that the tap had before, if any.
    pub fn insert(&mut self, tap: Tap, value: T) {
        self.0[tap as usize] = Some(value);
    }

    /// The taps that have a value, each with it, in the order of [`Tap::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Tap, &T)> {
        Tap::ALL.into_iter().zip(&self.0).filter_map(|(tap, value)| Some((tap, value.as_ref()?)))
    }

    /// The taps that have a value, with a mutable reference to it, in the order of [`Tap::ALL`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Tap, &mut T)> {
        Tap::ALL.into_iter().zip(&mut self.0).filter_map(|(tap, value)| Some((tap, value.as_mut()?)))
    }

    /// The set of the taps that have a value. Contains the log-probability in any case.
    #[must_use]
    pub fn set(&self) -> TapSet {
        self.iter().map(|(tap, _)| tap).collect()
    }
}

impl<T> IntoIterator for Taps<T> {
    type Item = (Tap, T);
    type IntoIter = std::vec::IntoIter<(Tap, T)>;

    /// The taps that have a value, each with it, in the order of [`Tap::ALL`].
    fn into_iter(self) -> Self::IntoIter {
        let found = Tap::ALL.into_iter().zip(self.0).filter_map(|(tap, value)| Some((tap, value?)));
        found.collect::<Vec<_>>().into_iter()
    }
}

impl<T> FromIterator<(Tap, T)> for Taps<T> {
    /// Collects values by their taps. Of several values of one tap, keeps the last.
    fn from_iter<I: IntoIterator<Item = (Tap, T)>>(values: I) -> Self {
        let mut taps = Self::default();
        values.into_iter().for_each(|(tap, value)| taps.insert(tap, value));
        taps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_contains_the_log_probability() {
        assert_eq!(TapSet::default().iter().collect::<Vec<_>>(), [Tap::Logprob]);
        assert_eq!(TapSet::of(&[Tap::TopOne]).iter().collect::<Vec<_>>(), [Tap::Logprob, Tap::TopOne]);
        assert_eq!(TapSet::OF_ONE_HEAD.iter().count(), Tap::ALL.len() - 1);
    }

    #[test]
    fn values_come_back_in_the_order_of_the_taps() {
        let taps: Taps<i32> = [(Tap::TopOne, 1), (Tap::Logprob, 2), (Tap::Logprob, 3)].into_iter().collect();
        assert_eq!(taps.into_iter().collect::<Vec<_>>(), [(Tap::Logprob, 3), (Tap::TopOne, 1)]);
        assert_eq!(taps.set(), TapSet::of(&[Tap::TopOne]));
        assert!(taps.get(Tap::Entropy).is_none());
    }
}
