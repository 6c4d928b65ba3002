//! The tensor directory of a GGUF file.

use std::collections::HashMap;
use std::ops::Range;

use kernels::Format;

use crate::ModelError;
use crate::place::Place;

use super::cursor::{Cursor, shown};
use super::metadata::Value;

/// The least an entry takes: name length, number of dimensions, one dimension, type, offset.
const SMALLEST_ENTRY: usize = 8 + 4 + 8 + 4 + 8;
/// The format's own limit.
const MAX_DIMENSIONS: u32 = 4;
/// Where tensor data starts when the file does not say otherwise.
const DEFAULT_ALIGNMENT: usize = 32;
/// No file aligns to more than a large page of some machine.
const MAX_ALIGNMENT: usize = 1 << 16;

pub(super) fn read<'a>(
    cursor: &mut Cursor<'_, 'a>,
    count: u64,
    metadata: &HashMap<&str, Value<'_>>,
) -> Result<HashMap<&'a str, Place>, ModelError> {
    let count = cursor.checked_count(count, SMALLEST_ENTRY, "tensors")?;
    let alignment = alignment(cursor, metadata)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(Entry::read(cursor)?);
    }
    let data_start = cursor.position().next_multiple_of(alignment);
    let mut tensors = HashMap::with_capacity(count);
    for entry in entries {
        let tensor = entry.locate(cursor, data_start, alignment)?;
        if tensors.insert(entry.name, tensor).is_some() {
            return Err(entry.error(cursor, "is there twice"));
        }
    }
    refuse_overlaps(cursor, &tensors)?;
    Ok(tensors)
}

fn alignment(
    cursor: &Cursor<'_, '_>,
    metadata: &HashMap<&str, Value<'_>>,
) -> Result<usize, ModelError> {
    let Some(value) = metadata.get("general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match value.as_usize() {
        Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => {
            Ok(alignment)
        }
        _ => Err(cursor.error(format!(
            "metadata `general.alignment` is not a power of two up to {MAX_ALIGNMENT}"
        ))),
    }
}

/// A directory entry before its extent is known to be sound.
struct Entry<'a> {
    name: &'a str,
    shape: Vec<usize>,
    format: Format,
    offset: u64,
}

impl<'a> Entry<'a> {
    fn read(cursor: &mut Cursor<'_, 'a>) -> Result<Self, ModelError> {
        let name = cursor.text("a tensor's name")?;
        let within = format!("tensor `{}`", shown(name));
        let file = cursor.file();
        let error = |reason: String| ModelError::tensor(file, &shown(name), reason);
        let dimensions = cursor.u32(&within)?;
        if dimensions == 0 || dimensions > MAX_DIMENSIONS {
            return Err(error(format!("has {dimensions} dimensions")));
        }
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            let dimension = cursor.u64(&within)?;
            match usize::try_from(dimension) {
                Ok(dimension) if dimension > 0 => shape.push(dimension),
                _ => return Err(error(format!("has a dimension of {dimension}"))),
            }
        }
        shape.reverse();
        let code = cursor.u32(&within)?;
        let format = format_of(code).ok_or_else(|| {
            error(format!(
                "is encoded as {}, which is not supported; supported are F32, F16, BF16, Q8_0, \
                 Q4_0, Q4_K and Q6_K",
                type_name(code)
            ))
        })?;
        let offset = cursor.u64(&within)?;
        Ok(Self {
            name,
            shape,
            format,
            offset,
        })
    }

    fn locate(
        &self,
        cursor: &Cursor<'_, '_>,
        data_start: usize,
        alignment: usize,
    ) -> Result<Place, ModelError> {
        let columns = self.shape.last().copied().unwrap_or_default();
        let rows = self.shape[..self.shape.len() - 1]
            .iter()
            .try_fold(1usize, |rows, dimension| rows.checked_mul(*dimension));
        let Some(row_bytes) = self.format.row_bytes(columns) else {
            let block = self.format.block_len();
            let reason = format!("has rows of {columns} values, not a multiple of {block}");
            return Err(self.error(cursor, &reason));
        };
        let start = usize::try_from(self.offset)
            .ok()
            .and_then(|offset| offset.checked_add(data_start));
        let end = rows
            .and_then(|rows| rows.checked_mul(row_bytes))
            .zip(start)
            .and_then(|(bytes, start)| start.checked_add(bytes));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(self.error(cursor, "has an impossible size or offset"));
        };
        if end > cursor.file_len() {
            let len = cursor.file_len();
            let reason = format!(
                "reaches to byte {end}, but the file has {len}; the download may be incomplete"
            );
            return Err(self.error(cursor, &reason));
        }
        if !(start - data_start).is_multiple_of(alignment) {
            let reason = format!(
                "starts at offset {}, not aligned to {alignment}",
                self.offset
            );
            return Err(self.error(cursor, &reason));
        }
        Ok(Place {
            shape: self.shape.clone(),
            format: self.format,
            range: start..end,
        })
    }

    fn error(&self, cursor: &Cursor<'_, '_>, reason: &str) -> ModelError {
        ModelError::tensor(cursor.file(), &shown(self.name), reason)
    }
}

fn refuse_overlaps(
    cursor: &Cursor<'_, '_>,
    tensors: &HashMap<&str, Place>,
) -> Result<(), ModelError> {
    let mut by_offset: Vec<(&str, &Range<usize>)> = tensors
        .iter()
        .map(|(name, tensor)| (*name, &tensor.range))
        .collect();
    by_offset.sort_unstable_by_key(|(_, range)| range.start);
    for pair in by_offset.windows(2) {
        if let [(first, before), (second, after)] = pair
            && before.end > after.start
        {
            let reason = format!("overlaps tensor `{}`", shown(first));
            return Err(ModelError::tensor(cursor.file(), &shown(second), reason));
        }
    }
    Ok(())
}

fn format_of(code: u32) -> Option<Format> {
    Some(match code {
        0 => Format::F32,
        1 => Format::F16,
        2 => Format::Q4_0,
        8 => Format::Q8_0,
        12 => Format::Q4K,
        14 => Format::Q6K,
        30 => Format::Bf16,
        _ => return None,
    })
}

/// Names of the encodings that people meet, so that an error speaks their language.
fn type_name(code: u32) -> String {
    let name = match code {
        3 => "Q4_1",
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16..=23 | 29 => "an IQ type",
        24..=27 => "an integer type",
        28 => "F64",
        34 | 35 => "a ternary type",
        39 => "MXFP4",
        _ => return format!("unknown type {code}"),
    };
    format!("{name} (type {code})")
}
