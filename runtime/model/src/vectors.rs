//! Steering vectors in files: safetensors with metadata about their origin, and GGUF control vectors.
//!
//! Both name the vector of a layer, counted from 0, `direction.<layer>`. A patch of the policy adds it to the output
//! of that block. Readers of GGUF control vectors have no layer 0, so these leave it out.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::RangeInclusive;
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use tunebox_compute::{DType, Device, Tensor};
use tunebox_foundation::bounded;

use crate::error::{Error, Result};
use crate::files::{self, TensorSpec};
use crate::policy::Policy;
use crate::stream::{Patch, Site};
use crate::weights::gguf::Header;
use crate::weights::safetensors;

/// The prefix of the tensor name of a layer's vector.
const PREFIX: &str = "direction.";

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 30;

/// Metadata about where vectors come from, as text by key.
pub type Metadata = BTreeMap<String, String>;

/// One direction of the hidden dimension for each of some layers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vectors {
    /// The vectors by layer, all of the same length.
    pub layers: BTreeMap<usize, Vec<f32>>,
    /// `method`, `model`, `site`, `token`, `scale` and other metadata.
    pub metadata: Metadata,
}

impl Vectors {
    /// Writes the vectors as a safetensors file, and replaces one of this name: tensors `direction.<layer>` in `f32`,
    /// with the metadata in the header.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let vectors: Vec<&Vec<f32>> = self.layers.values().collect();
        let stored = |(layer, vector): (&usize, &Vec<f32>)| {
            let (name, shape) = (format!("{PREFIX}{layer}"), vec![vector.len()]);
            TensorSpec { name, shape, dtype: DType::F32 }
        };
        let list: Vec<TensorSpec> = self.layers.iter().map(stored).collect();
        files::write_tensors(path, &list, Some(&self.metadata), |number| {
            Ok(Tensor::from_slice(vectors[number], vectors[number].len(), &Device::Cpu)?)
        })
    }

    /// Writes a GGUF control vector for llama.cpp and repeng, and replaces a file of this name: tensors
    /// `direction.<layer>` in `f32`, without layer 0 and without [`Vectors::metadata`]. `family` is the model's type,
    /// such as `llama`, which the file names as a hint.
    ///
    /// # Errors
    /// When there is no other layer than 0, or the file cannot be written.
    pub fn save_gguf(&self, path: &Path, family: &str) -> Result<()> {
        let mut tensors = Vec::new();
        for (layer, vector) in self.layers.iter().filter(|(layer, _)| **layer > 0) {
            let tensor = Tensor::from_slice(vector, vector.len(), &Device::Cpu)?;
            tensors.push((format!("{PREFIX}{layer}"), QTensor::quantize(&tensor, GgmlDType::F32)?));
        }
        if tensors.is_empty() {
            return Err(Error::Argument("a GGUF control vector holds layers from 1 on, and there is none".into()));
        }
        let count = u32::try_from(tensors.len()).unwrap_or(u32::MAX);
        let metadata = [
            ("general.architecture", Value::String("controlvector".into())),
            ("controlvector.model_hint", Value::String(family.into())),
            ("controlvector.layer_count", Value::U32(count)),
        ];
        let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
        let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut bytes = Cursor::new(Vec::new());
        gguf_file::write(&mut bytes, &metadata, &tensors)?;
        files::write(path, bytes.get_ref())
    }

    /// Reads vectors, as `f32`, from a GGUF control vector if the file begins with `GGUF`, else from safetensors. A
    /// GGUF file gives no metadata.
    ///
    /// # Errors
    /// When the file cannot be read, has more than 1 GiB, is neither, holds no vectors or tensors of other names or
    /// more axes, or its vectors are empty, differ in width or are not finite.
    pub fn load(path: &Path) -> Result<Self> {
        let failed = |error| Error::file(path, error);
        let bytes = bounded::read(path, LARGEST).map_err(failed)?;
        let (tensors, metadata) = if bytes.starts_with(b"GGUF") {
            (Header::read(path)?.tensors, Metadata::new())
        } else {
            (safetensors::locate(&[path.to_path_buf()])?, safetensors::metadata(path)?)
        };
        let mut vectors = Self { layers: BTreeMap::new(), metadata };
        for (name, location) in tensors {
            let layer = name.strip_prefix(PREFIX).and_then(|layer| layer.parse().ok());
            let layer = layer
                .ok_or_else(|| Error::broken(path, format!("it holds `{name}`, not only directions of layers")))?;
            if location.shape.len() != 1 {
                let what = format!("`{name}` is {:?}, a direction has one axis", location.shape);
                return Err(Error::broken(path, what));
            }
            vectors.layers.insert(layer, location.read_f32()?);
        }
        let width = vectors.width();
        if width == 0 || vectors.layers.values().any(|vector| vector.len() != width) {
            return Err(Error::broken(path, "its directions are missing or differ in width"));
        }
        if vectors.layers.values().flatten().any(|value| !value.is_finite()) {
            return Err(Error::broken(path, "a direction holds a number that is not finite"));
        }
        Ok(vectors)
    }

    /// The number of values of each vector; 0 without vectors.
    #[must_use]
    pub fn width(&self) -> usize {
        self.layers.values().next().map_or(0, Vec::len)
    }
}

impl Policy {
    /// Activates one patch for each layer in `layers` for which there is a direction: it adds `coefficient` · direction
    /// to the block's output at every token. Skips layers without a direction. Earlier patches stay. Returns no numbers
    /// of the patches, so [`unpatch_all`](Self::unpatch_all) removes them.
    ///
    /// # Errors
    /// When any vector is for a layer that the model does not have, no vector is for a layer in `layers`, the vectors
    /// are not as long as the hidden dimension, or `coefficient` · direction is not finite. If the product is not
    /// finite for some layer, the patches of lower layers stay active.
    pub fn steer(&mut self, vectors: &Vectors, coefficient: f32, layers: &RangeInclusive<usize>) -> Result<()> {
        let configuration = &self.model().configuration;
        vectors.layers.keys().try_for_each(|layer| configuration.check_layer(*layer))?;
        let mut chosen = vectors.layers.range(layers.clone()).peekable();
        if chosen.peek().is_none() {
            let known: Vec<String> = vectors.layers.keys().map(ToString::to_string).collect();
            let (first, last) = (layers.start(), layers.end());
            return Err(Error::Argument(format!(
                "no direction is for layers {first} to {last}; there are those of {}",
                known.join(", ")
            )));
        }
        for (layer, vector) in chosen {
            self.patch(Patch::add(vec![*layer], Site::ResidualAfter, vector, coefficient, false)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::policy::View;
    use crate::tiny;

    fn vectors() -> Vectors {
        let layer = |number: usize| (number, (0..16).map(|at| (at + number) as f32 / 3.0).collect());
        let metadata = [("method", "steer"), ("site", "residual-after"), ("token", "from-end-0"), ("scale", "1")];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Vectors { layers: [layer(0), layer(1)].into(), metadata: metadata.into() }
    }

    fn policy() -> Policy {
        tiny::plain(tiny::llama())
    }

    fn logprobs(policy: &Policy) -> Vec<f32> {
        tiny::logprobs(policy, &View::Policy)
    }

    #[test]
    fn directions_come_back_from_safetensors_and_are_the_same_bytes_with_metadata_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str| {
            let path = folder.path().join(name);
            vectors().save(&path).unwrap();
            assert_eq!(Vectors::load(&path).unwrap(), vectors());
            std::fs::read(path).unwrap()
        };
        let first = written("first");
        assert!(first == written("second"));
        let header = r#"{"__metadata__":{"method":"steer","scale":"1","site":"residual-after","token":"from-end-0"},"#;
        assert!(first[8..].starts_with(header.as_bytes()), "{}", String::from_utf8_lossy(&first[8..200]));
    }

    #[test]
    fn a_control_vector_comes_back_without_layer_0() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.gguf");
        vectors().save_gguf(&path, "llama").unwrap();
        let found = Vectors::load(&path).unwrap();
        assert_eq!(found.layers, [(1, vectors().layers[&1].clone())].into());
        let metadata = Header::read(&path).unwrap().metadata;
        let text = |key: &str| format!("{:?}", metadata.value(key));
        assert!(text("general.architecture").contains("\"controlvector\""), "{}", text("general.architecture"));
        assert!(text("controlvector.model_hint").contains("\"llama\""));
        assert!(text("controlvector.layer_count").contains("Number(1.0)"));
        let only = Vectors { layers: [(0, vec![1.0])].into(), ..Vectors::default() };
        assert!(only.save_gguf(&path, "llama").is_err());
        // candle reads it as well.
        let mut file = std::fs::File::open(&path).unwrap();
        let content = gguf_file::Content::read(&mut file).unwrap();
        let tensor = content.tensor(&mut file, "direction.1", &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
        assert_eq!(tensor.dims(), [16]);
        assert_eq!(tensor.to_vec1::<f32>().unwrap(), vectors().layers[&1]);
    }

    #[test]
    fn steering_is_the_sum_at_the_outputs_asked_for() {
        let (mut steered, mut patched) = (policy(), policy());
        steered.steer(&vectors(), -0.5, &(1..=5)).unwrap();
        let vector = &vectors().layers[&1];
        let patch = Patch::add(vec![1], Site::ResidualAfter, vector, -0.5, false).unwrap();
        patched.patch(patch).unwrap();
        assert_eq!(logprobs(&steered), logprobs(&patched));
        assert_ne!(logprobs(&steered), logprobs(&policy()));
    }

    #[test]
    fn directions_of_another_model_are_refused_with_the_difference() {
        let told = |vectors: &Vectors, layers| policy().steer(vectors, 1.0, &layers).unwrap_err().to_string();
        let narrow = Vectors { layers: [(1, vec![1.0; 8])].into(), ..Vectors::default() };
        assert!(told(&narrow, 0..=1).contains("`8` numbers, the model's stream is `16` wide"));
        let deep = Vectors { layers: [(7, vec![1.0; 16])].into(), ..Vectors::default() };
        assert!(told(&deep, 0..=9).contains("layer `7`"));
        assert!(told(&vectors(), 2..=3).contains("there are those of 0, 1"));
    }

    #[test]
    fn files_that_are_no_directions_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vectors.safetensors");
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Vectors::load(&path).unwrap_err().to_string()
        };
        assert!(refused(b"").contains("no head"));
        assert!(refused(b"GGUF").len() > 5);
        #[cfg(unix)]
        assert!(Vectors::load(Path::new("/dev/zero")).is_err(), "what never ends");
        let cases = [(vec![(0, vec![1.0; 3]), (1, vec![1.0; 2])], "differ"), (vec![(0, vec![f32::NAN; 3])], "finite")];
        for (layers, why) in cases {
            Vectors { layers: layers.into_iter().collect(), ..Vectors::default() }.save(&path).unwrap();
            assert!(Vectors::load(&path).unwrap_err().to_string().contains(why));
        }
        let norm = tiny::model(tiny::llama(), 1).weights.get("model.norm.weight").unwrap();
        candle_core::safetensors::save(&HashMap::from([("model.norm.weight", norm)]), &path).unwrap();
        assert!(Vectors::load(&path).unwrap_err().to_string().contains("not only directions"));
    }
}
