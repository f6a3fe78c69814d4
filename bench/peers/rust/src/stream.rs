//! Batches through an exported stream, which the consumer reads. arrow-rs has plain streams only.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use crate::{Data, Run};

pub fn operation(name: &str) -> Option<Box<dyn Fn(&Data, i64) -> Result<(), ArrowError>>> {
    match name {
        "stream, read in C" | "wrap+stream, read in C" => Some(Box::new(stream as Run)),
        _ => None,
    }
}

/// Gives the same batch so many times.
struct Repeated {
    schema: SchemaRef,
    batch: RecordBatch,
    left: i64,
}

impl Iterator for Repeated {
    type Item = Result<RecordBatch, ArrowError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.left -= 1;
        (self.left >= 0).then(|| Ok(self.batch.clone()))
    }
}

impl RecordBatchReader for Repeated {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

fn stream(data: &Data, n: i64) -> Result<(), ArrowError> {
    let source = Repeated { schema: data.schema.clone(), batch: data.batch.clone(), left: n };
    if data.read(FFI_ArrowArrayStream::new(Box::new(source))) == n {
        return Ok(());
    }
    Err(ArrowError::CDataInterface("the stream ended early".into()))
}
