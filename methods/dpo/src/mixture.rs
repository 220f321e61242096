//! Parses the setting `loss`: names of losses with their weights, separated by commas.

use tunebox::prelude::*;

use crate::losses::Loss;

/// Parses the losses and their weights; a missing weight is 1. Errors: an unknown name, a weight that is no finite
/// number, a name given twice, and a smoothing that the losses do not take.
pub(crate) fn parse(text: &str, smoothing: f32) -> Result<Vec<(Loss, f32)>> {
    let mut mixture: Vec<(Loss, f32)> = Vec::new();
    for entry in text.split(',') {
        let mut words = entry.split_whitespace();
        let loss = parse_name(words.next().unwrap_or_default())?;
        let weight = words.next().map_or(Ok(1.0), |word| parse_weight(word, loss))?;
        if let Some(word) = words.next() {
            return Err(Error::new(format!(
                "`loss`: `{word}` follows the weight of `{}`; a comma is missing",
                loss.name()
            )));
        }
        if mixture.iter().any(|(other, _)| *other == loss) {
            return Err(Error::new(format!("`loss` names `{}` twice", loss.name())));
        }
        mixture.push((loss, weight));
    }
    check_smoothing(&mixture, smoothing)?;
    Ok(mixture)
}

/// Parses the name of a loss. The error lists the names.
fn parse_name(word: &str) -> Result<Loss> {
    let place = Loss::NAMES.iter().position(|name| *name == word);
    place.and_then(|place| Loss::VALUES.get(place).copied()).ok_or_else(|| {
        let what = if word.is_empty() { "a name is missing".to_owned() } else { format!("`{word}` is not a loss") };
        Error::new(format!("`loss`: {what}; the losses are {}", Loss::NAMES.join(", ")))
    })
}

/// Parses the weight of `loss`, a finite number.
fn parse_weight(word: &str, loss: Loss) -> Result<f32> {
    match word.parse::<f32>() {
        Ok(weight) if weight.is_finite() => Ok(weight),
        _ => Err(Error::new(format!("`loss`: the weight of `{}` is `{word}`, not a number", loss.name()))),
    }
}

/// Fails if there is a smoothing and no loss uses it, and if `exo-pair` has none.
fn check_smoothing(mixture: &[(Loss, f32)], smoothing: f32) -> Result<()> {
    if smoothing == 0.0 && mixture.iter().any(|(loss, _)| *loss == Loss::ExoPair) {
        return Err(Error::new(
            "`loss = \"exo-pair\"` takes the log of `label-smoothing`; set it above 0, such as 0.001",
        ));
    }
    if smoothing > 0.0 && !mixture.iter().any(|(loss, _)| loss.reads_smoothing()) {
        return Err(Error::new(
            "`label-smoothing` acts in `cdpo`, `robust`, `exo-pair`, `aot` and `aot-unpaired`; take one of them \
             (`cdpo` is `sigmoid` with smoothing), or leave it 0",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, smoothing: f32) -> String {
        parse(text, smoothing).unwrap_err().to_string()
    }

    #[test]
    fn names_may_have_weights() {
        let mixture = parse("sigmoid 0.8, bco-pair 0.2,sft", 0.0).unwrap();
        assert_eq!(mixture, [(Loss::Sigmoid, 0.8), (Loss::BcoPair, 0.2), (Loss::Sft, 1.0)]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert!(refused("sigmod", 0.0).starts_with("`loss`: `sigmod` is not a loss; the losses are sigmoid, "));
        assert!(refused("sigmoid,", 0.0).starts_with("`loss`: a name is missing"));
        assert_eq!(refused("sigmoid half", 0.0), "`loss`: the weight of `sigmoid` is `half`, not a number");
        assert_eq!(refused("sft nan", 0.0), "`loss`: the weight of `sft` is `nan`, not a number");
        assert_eq!(refused("sft 1 sigmoid", 0.0), "`loss`: `sigmoid` follows the weight of `sft`; a comma is missing");
        assert_eq!(refused("sft, sft 2", 0.0), "`loss` names `sft` twice");
    }

    #[test]
    fn smoothing_that_would_do_nothing_or_cannot_be_zero_is_refused() {
        assert!(refused("sigmoid", 0.1).contains("`cdpo`"));
        assert!(refused("exo-pair", 0.0).contains("0.001"));
        assert!(parse("cdpo, sigmoid", 0.1).is_ok());
    }
}
