//! Reads and writes the directions that a method published for the run's artifact.

use std::collections::BTreeMap;
use std::path::Path;

use tunebox_model::stream::{Site, Token};
use tunebox_model::vectors::{Metadata, Vectors};
use tunebox_sandbox::Direction;

use crate::error::{Error, damaged};

/// The file of directions, in a checkpoint and in a run's folder.
pub(crate) const FILE: &str = "vectors.safetensors";

/// The file of the same directions as a control vector for llama.cpp and repeng.
pub(crate) const CONTROL_VECTOR: &str = "vectors.gguf";

/// Converts directions, by the number of their layer, to the content of a vectors file. The metadata is `pairs` of key
/// and value. If there is a direction, the metadata also gets the `site`, `token` and `scale` (the coefficient) of the
/// lowest layer's, in place of pairs with these keys.
pub(crate) fn to_vectors(published: &BTreeMap<usize, Direction>, pairs: &[(&str, &str)]) -> Vectors {
    let layers = published.iter().map(|(layer, direction)| (*layer, direction.vector.clone())).collect();
    let mut metadata: Metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    if let Some(first) = published.values().next() {
        metadata.insert("site".into(), first.site.name().into());
        metadata.insert("token".into(), first.token.name());
        metadata.insert("scale".into(), first.coefficient.to_string());
    }
    Vectors { layers, metadata }
}

/// Writes directions, by the number of their layer, into the folder of a checkpoint, as [`FILE`]; does nothing if there
/// are none.
pub(crate) fn save(published: &BTreeMap<usize, Direction>, folder: &Path) -> Result<(), Error> {
    if published.is_empty() {
        return Ok(());
    }
    Ok(to_vectors(published, &[]).save(&folder.join(FILE))?)
}

/// Reads the directions of a checkpoint from its folder, by layer; none if the folder has no file of directions. All of
/// them get the site, token and scale in the file's metadata. Fails if one of the three is missing or unknown.
pub(crate) fn restore(folder: &Path) -> Result<BTreeMap<usize, Direction>, Error> {
    let path = folder.join(FILE);
    if !path.is_file() {
        return Ok(BTreeMap::new());
    }
    let vectors = Vectors::load(&path)?;
    let text = |name: &str| vectors.metadata.get(name).map_or("", String::as_str);
    let known = (Site::from_name(text("site")), Token::from_name(text("token")), text("scale").parse().ok());
    let (Some(site), Some(token), Some(coefficient)) = known else {
        return Err(damaged(&path, "its directions do not say where they were read"));
    };
    let direction = |(layer, vector)| (layer, Direction { layer, site, token, vector, coefficient });
    Ok(vectors.layers.into_iter().map(direction).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(layer: usize, token: Token) -> (usize, Direction) {
        let vector = vec![0.5, -1.5, layer as f32];
        (layer, Direction { layer, site: Site::ResidualAfter, token, vector, coefficient: 2.5 })
    }

    #[test]
    fn directions_survive_a_checkpoint_with_where_they_were_read() {
        for token in [Token::FromEnd(3), Token::TargetMean] {
            let folder = tempfile::tempdir().unwrap();
            let published = BTreeMap::from([direction(0, token), direction(7, token)]);
            save(&published, folder.path()).unwrap();
            assert_eq!(restore(folder.path()).unwrap(), published);
        }
    }

    #[test]
    fn a_checkpoint_has_no_directions_or_such_that_say_where_they_were_read() {
        let folder = tempfile::tempdir().unwrap();
        save(&BTreeMap::new(), folder.path()).unwrap();
        assert!(!folder.path().join(FILE).exists() && restore(folder.path()).unwrap().is_empty());
        let layers = BTreeMap::from([(1, vec![1.0])]);
        Vectors { layers, ..Vectors::default() }.save(&folder.path().join(FILE)).unwrap();
        assert!(restore(folder.path()).is_err());
    }
}
