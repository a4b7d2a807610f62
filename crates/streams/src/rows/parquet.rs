//! A table as a file of Parquet: one row group, zstd, no column is required but the identity's.

use std::sync::Arc;

use parquet::basic::{
    Compression, LogicalType, Repetition, TimeUnit, Type as PhysicalType, ZstdLevel,
};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

use super::cell::Cell;
use super::columns::ColumnKind;
use crate::receiver::SendError;

/// A column and its cells.
#[derive(Clone, Debug)]
pub struct FilledColumn {
    pub name: String,
    pub kind: ColumnKind,
    pub cells: Vec<Cell>,
}

impl FilledColumn {
    pub fn new(name: impl Into<String>, kind: ColumnKind) -> Self {
        Self {
            name: name.into(),
            kind,
            cells: Vec::new(),
        }
    }
}

/// Returns the file with these columns, which have a cell for each row.
pub fn file(columns: &[FilledColumn]) -> Result<Vec<u8>, SendError> {
    written(columns).map_err(|error| SendError::caused("Parquet can't be written", &error))
}

fn written(columns: &[FilledColumn]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns
        .iter()
        .map(|column| field(column).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(
        Type::group_type_builder("windows")
            .with_fields(fields)
            .build()?,
    );
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_created_by("twinprobe".to_owned())
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        let Some(mut place) = group.next_column()? else {
            break;
        };
        fill(&mut place, column)?;
        place.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

fn field(column: &FilledColumn) -> Result<Type, ParquetError> {
    let integer = |bits: u32, signed| {
        // Parquet's integers have 8, 16, 32 or 64 bits.
        let bits = bits.next_power_of_two().clamp(8, 64) as i8;
        let physical = if bits == 64 {
            PhysicalType::INT64
        } else {
            PhysicalType::INT32
        };
        (physical, Some(LogicalType::integer(bits, signed)))
    };
    let (physical, logical) = match column.kind {
        ColumnKind::Unsigned { bits } => integer(bits, false),
        ColumnKind::Signed { bits } => integer(bits, true),
        ColumnKind::Float { bits: 32 } => (PhysicalType::FLOAT, None),
        ColumnKind::Float { .. } => (PhysicalType::DOUBLE, None),
        ColumnKind::Bool => (PhysicalType::BOOLEAN, None),
        ColumnKind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Json => (PhysicalType::BYTE_ARRAY, Some(LogicalType::Json)),
        ColumnKind::Time => (
            PhysicalType::INT64,
            Some(LogicalType::timestamp(true, TimeUnit::NANOS)),
        ),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn fill(place: &mut SerializedColumnWriter<'_>, column: &FilledColumn) -> Result<(), ParquetError> {
    let cells = &column.cells;
    match column.kind {
        ColumnKind::Unsigned { bits } | ColumnKind::Signed { bits } if bits <= 32 => {
            write::<Int32Type>(place, cells, |cell| whole(cell).map(|number| number as i32))
        }
        ColumnKind::Unsigned { .. } | ColumnKind::Signed { .. } | ColumnKind::Time => {
            write::<Int64Type>(place, cells, whole)
        }
        ColumnKind::Float { bits: 32 } => write::<FloatType>(place, cells, |cell| match cell {
            Cell::Float(number) => Some(*number as f32),
            _ => None,
        }),
        ColumnKind::Float { .. } => write::<DoubleType>(place, cells, |cell| match cell {
            Cell::Float(number) => Some(*number),
            _ => None,
        }),
        ColumnKind::Bool => write::<BoolType>(place, cells, |cell| match cell {
            Cell::Bool(value) => Some(*value),
            _ => None,
        }),
        ColumnKind::Text | ColumnKind::Json => {
            let mut last: Option<(&Arc<str>, ByteArray)> = None;
            write::<ByteArrayType>(place, cells, |cell| {
                let Cell::Text(text) = cell else { return None };
                let known = last.take().filter(|(known, _)| Arc::ptr_eq(known, text));
                let (_, bytes) =
                    last.insert(known.unwrap_or_else(|| (text, ByteArray::from(&**text))));
                Some(bytes.clone())
            })
        }
    }
}

/// The bits of an integer or of a time.
const fn whole(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Unsigned(number) => Some(number.cast_signed()),
        Cell::Signed(number) | Cell::Time(number) => Some(*number),
        _ => None,
    }
}

fn write<'a, T: DataType>(
    place: &mut SerializedColumnWriter<'_>,
    cells: &'a [Cell],
    value: impl FnMut(&'a Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = cells.iter().map(value).collect();
    // A cell that is missing has level 0.
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    place
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)
        .map(drop)
}
