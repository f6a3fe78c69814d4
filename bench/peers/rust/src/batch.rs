//! Operations on one batch or schema.

use std::cell::RefCell;
use std::hint::black_box;

use arrow_array::ffi::{from_ffi_and_data_type, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, Int64Array, RecordBatch, StructArray};
use arrow_schema::{ArrowError, Schema};

use crate::{Data, Run};

type Operation = Box<dyn Fn(&Data, i64) -> Result<(), ArrowError>>;

pub fn operation(name: &str, data: &Data) -> Option<Operation> {
    let run: Run = match name {
        "wrap+export, released in C" => wrap_export,
        "import+release" => import,
        "import+view+release" | "import+view, one column read" => import_view,
        "import+values, one column read" => import_values,
        // arrow-rs keeps nothing of a schema that it saw before.
        "schema, first time" | "schema again" => schema,
        "export, released in C" | "live exports" | "full validation" => return Some(prepared(name, data)),
        _ => return None,
    };
    Some(Box::new(run))
}

/// The operations that begin with the batch as ArrayData, which is what arrow-rs exports and checks.
fn prepared(name: &str, data: &Data) -> Operation {
    let whole = StructArray::from(data.batch.clone()).to_data();
    if name == "full validation" {
        return Box::new(move |_, n| {
            for _ in 0..n {
                whole.validate_full()?;
            }
            Ok(())
        });
    }
    if name == "live exports" {
        let live = RefCell::new(Vec::new());
        return Box::new(move |_, n| {
            let mut live = live.borrow_mut();
            live.reserve_exact(n as usize);
            // In the space of a struct ArrowDeviceArray, as the others.
            live.extend((0..n).map(|_| (FFI_ArrowArray::new(&whole), [0u64; 6])));
            Ok(())
        });
    }
    Box::new(move |data, n| {
        for _ in 0..n {
            data.take(FFI_ArrowArray::new(&whole));
        }
        Ok(())
    })
}

fn wrap_export(data: &Data, n: i64) -> Result<(), ArrowError> {
    for _ in 0..n {
        let whole = StructArray::from(data.batch.clone()).into_data();
        data.take(FFI_ArrowArray::new(&whole));
    }
    Ok(())
}

/// Ends with ArrayData: its buffers can be read by their types.
fn import(data: &Data, n: i64) -> Result<(), ArrowError> {
    for _ in 0..n {
        drop(black_box(unsafe { from_ffi_and_data_type(data.given(), data.data_type.clone()) }?));
    }
    Ok(())
}

/// Ends with a RecordBatch, whose columns are typed arrays.
fn import_view(data: &Data, n: i64) -> Result<(), ArrowError> {
    for _ in 0..n {
        let imported = unsafe { from_ffi_and_data_type(data.given(), data.data_type.clone()) }?;
        drop(black_box(RecordBatch::from(StructArray::from(imported))));
    }
    Ok(())
}

/// Of the batch, one column becomes a typed array.
fn import_values(data: &Data, n: i64) -> Result<(), ArrowError> {
    for _ in 0..n {
        let imported = unsafe { from_ffi_and_data_type(data.given(), data.data_type.clone()) }?;
        let column = Int64Array::from(imported.child_data()[0].clone());
        black_box(column.values().iter().sum::<i64>());
    }
    Ok(())
}

fn schema(data: &Data, n: i64) -> Result<(), ArrowError> {
    for _ in 0..n {
        let exported = FFI_ArrowSchema::try_from(data.schema.as_ref())?;
        black_box(Schema::try_from(&exported)?);
    }
    Ok(())
}
