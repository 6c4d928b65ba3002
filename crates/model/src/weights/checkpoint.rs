//! All tensors of a model, wherever they are stored.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use kernels::{Format, MappedFile};
use serde_json::Value;

use crate::ModelError;
use crate::config::{Architecture, ModelConfig};
use crate::gguf::Gguf;
use crate::place::Place;
use crate::safetensors;

use super::names::{Name, Naming};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A mapped file and the name that errors give it.
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) bytes: MappedFile,
}

impl SourceFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ModelError> {
        let bytes = MappedFile::open(path).map_err(|source| ModelError::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            name: path.display().to_string(),
            bytes,
        })
    }
}

/// A tensor in a mapped file.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(super) file: Arc<SourceFile>,
    pub(super) name: String,
    place: Place,
}

impl Stored {
    pub(super) fn format(&self) -> Format {
        self.place.format
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.file
            .bytes
            .get(self.place.range.clone())
            .unwrap_or_default()
    }

    /// Values of one row: all of them for a vector.
    pub(super) fn columns(&self) -> usize {
        self.place.shape.last().copied().unwrap_or_default()
    }

    /// The encoded bytes of one row; empty if there is no such row.
    pub(super) fn row(&self, row: usize) -> &[u8] {
        let len = self.format().row_bytes(self.columns()).unwrap_or_default();
        let start = row.saturating_mul(len);
        self.bytes()
            .get(start..start.saturating_add(len))
            .unwrap_or_default()
    }

    /// Lets the system take the tensor's pages back; it will not be read soon.
    pub(super) fn forget(&self) {
        self.file.bytes.forget(self.place.range.clone());
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> ModelError {
        ModelError::tensor(&self.file.name, &self.name, reason)
    }
}

/// The tensors of a model by name.
pub(crate) struct Checkpoint {
    label: String,
    naming: Naming,
    /// Llama's GGUF files store rotated rows with the two halves of each head alternating.
    pub(super) interleaved: bool,
    tensors: HashMap<String, Stored>,
}

impl Checkpoint {
    /// The tensors of a parsed GGUF file.
    pub(crate) fn from_gguf(file: &Arc<SourceFile>, gguf: &Gguf<'_>, config: &ModelConfig) -> Self {
        let tensors = gguf
            .tensors()
            .map(|(name, place)| stored(file, name.to_owned(), place.clone()));
        Self {
            label: file.name.clone(),
            naming: Naming::Gguf,
            interleaved: config.architecture == Architecture::Llama,
            tensors: tensors.collect(),
        }
    }

    /// The tensors of a folder with one or several safetensors files.
    pub(crate) fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let label = folder.display().to_string();
        let mut tensors = HashMap::new();
        for path in shards(folder)? {
            let file = Arc::new(SourceFile::open(&folder.join(path))?);
            for (name, place) in safetensors::parse(&file.name, &file.bytes)? {
                let (name, tensor) = stored(&file, name, place);
                if let Some(twice) = tensors.insert(name, tensor) {
                    return Err(twice.error("is also in another file of the folder"));
                }
            }
        }
        Ok(Self {
            label,
            naming: Naming::HuggingFace,
            interleaved: false,
            tensors,
        })
    }

    /// Looks a tensor up.
    pub(super) fn find(&self, name: Name) -> Option<&Stored> {
        self.tensors.get(&name.text(self.naming))
    }

    /// A tensor that must be there.
    pub(super) fn require(&self, name: Name) -> Result<&Stored, ModelError> {
        self.find(name).ok_or_else(|| ModelError::MissingTensor {
            file: self.label.clone(),
            tensor: name.text(self.naming),
        })
    }

    /// Holds every tensor that is there against the shape it must have, and gives the bytes of those that
    /// will be packed.
    pub(super) fn checked_bytes(&self, config: &ModelConfig) -> Result<usize, ModelError> {
        let mut bytes = 0;
        for name in Name::all(config) {
            let Some(tensor) = self.find(name) else {
                continue;
            };
            let expected = name.shape(config);
            if tensor.place.shape != expected {
                let found = &tensor.place.shape;
                return Err(tensor.error(format!(
                    "has shape {found:?}, but the config asks for {expected:?}"
                )));
            }
            let is_unused = if config.tied {
                Name::Output
            } else {
                Name::Embedding
            };
            if name != is_unused {
                bytes += tensor.bytes().len();
            }
        }
        Ok(bytes)
    }
}

fn stored(file: &Arc<SourceFile>, name: String, place: Place) -> (String, Stored) {
    let tensor = Stored {
        file: Arc::clone(file),
        name: name.clone(),
        place,
    };
    (name, tensor)
}

/// File names of a folder's weights.
fn shards(folder: &Path) -> Result<BTreeSet<String>, ModelError> {
    if folder.join(SINGLE).is_file() {
        return Ok(BTreeSet::from([SINGLE.to_owned()]));
    }
    let index = folder.join(INDEX);
    if !index.is_file() {
        return Err(ModelError::malformed(
            &folder.display().to_string(),
            format!("has neither {SINGLE} nor {INDEX}; other formats must be converted first"),
        ));
    }
    let label = index.display().to_string();
    let bytes = std::fs::read(&index).map_err(|source| ModelError::Read {
        path: index,
        source,
    })?;
    let json: Value = serde_json::from_slice(&bytes)
        .map_err(|error| ModelError::malformed(&label, error.to_string()))?;
    let Some(map) = json.get("weight_map").and_then(Value::as_object) else {
        return Err(ModelError::malformed(&label, "has no weight_map"));
    };
    map.iter()
        .map(|(tensor, file)| match file.as_str() {
            Some(file) if is_plain_name(file) => Ok(file.to_owned()),
            _ => Err(ModelError::tensor(
                &label,
                tensor,
                "is not in a file of this folder",
            )),
        })
        .collect()
}

/// Whether a name from an index stays inside its folder.
fn is_plain_name(file: &str) -> bool {
    Path::new(file).file_name().is_some_and(|name| name == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_cannot_point_out_of_its_folder() {
        for outside in ["../a", "/etc/passwd", "a/b", "..", ""] {
            assert!(!is_plain_name(outside), "{outside}");
        }
        assert!(is_plain_name("model-00001-of-00002.safetensors"));
    }
}
