//! Reads the headers of safetensors files.
//!
//! The `safetensors` crate does the parsing and makes sure that offsets lie inside the file, do not
//! overlap and agree with shapes; what is left is to say which tensor of which file is wrong.

use ::safetensors::{Dtype, SafeTensors};
use kernels::Format;

use crate::ModelError;
use crate::place::Place;

/// Bytes of the header's length in front of the header.
const LENGTH_BYTES: usize = 8;

/// Names and places of all tensors; `file` is the name that errors give.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Vec<(String, Place)>, ModelError> {
    let (header_bytes, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|error| ModelError::malformed(file, format!("safetensors header: {error}")))?;
    let data_start = LENGTH_BYTES + header_bytes;
    metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let format = match info.dtype {
                Dtype::F32 => Format::F32,
                Dtype::F16 => Format::F16,
                Dtype::BF16 => Format::Bf16,
                other => {
                    let reason = format!("is stored as {other}; supported are F32, F16 and BF16");
                    return Err(ModelError::tensor(file, &name, reason));
                }
            };
            let (start, end) = info.data_offsets;
            let place = Place {
                shape: info.shape.clone(),
                format,
                range: data_start + start..data_start + end,
            };
            Ok((name, place))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::safetensors::tensor::TensorView;

    #[test]
    fn tensors_are_found_where_they_are() {
        let values: Vec<u8> = (0..24).collect();
        let view = TensorView::new(Dtype::F32, vec![2, 3], &values).unwrap();
        let bytes = ::safetensors::serialize([("w", view)], None).unwrap();
        let tensors = parse("a", &bytes).unwrap();
        let (name, place) = &tensors[0];
        assert_eq!((name.as_str(), place.format), ("w", Format::F32));
        assert_eq!(place.shape, [2, 3]);
        assert_eq!(bytes[place.range.clone()], values);
    }

    #[test]
    fn types_without_kernels_are_named() {
        let values = [0; 8];
        let view = TensorView::new(Dtype::I64, vec![1], &values).unwrap();
        let bytes = ::safetensors::serialize([("ids", view)], None).unwrap();
        let error = parse("a.safetensors", &bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("a.safetensors: tensor `ids` is stored as I64"),
            "{error}"
        );
    }

    #[test]
    fn a_lying_header_is_an_error() {
        for bytes in [
            &b""[..],
            b"\xff\xff\xff\xff\xff\xff\xff\x7f{}",
            b"\x02\0\0\0\0\0\0\0{",
        ] {
            assert!(parse("a", bytes).is_err());
        }
    }
}
