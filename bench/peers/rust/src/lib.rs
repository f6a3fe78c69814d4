//! The arrow-rs peer: its entry points. `peer.h` has the rules.

mod batch;
mod stream;

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::sync::Arc;

use arrow_array::ffi::{from_ffi_and_data_type, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, StructArray};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

/// struct ArrowDeviceArray, which arrow-rs does not have.
#[repr(C)]
pub struct DeviceArray {
    array: FFI_ArrowArray,
    device_id: i64,
    device_type: i32,
    sync_event: *mut c_void,
    reserved: [i64; 3],
}

#[repr(C)]
pub struct Producer {
    give: unsafe extern "C" fn(*mut Producer, *mut DeviceArray),
}

#[repr(C)]
pub struct Consumer {
    take: unsafe extern "C" fn(*mut Consumer, *mut FFI_ArrowArray),
    read: unsafe extern "C" fn(*mut Consumer, *mut FFI_ArrowArrayStream) -> i64,
    _read_device: unsafe extern "C" fn(*mut Consumer, *mut c_void) -> i64, // arrow-rs has plain streams only
}

/// What operations begin with.
pub struct Data {
    schema: SchemaRef,
    data_type: DataType, // the struct of the schema's fields
    batch: RecordBatch,
    producer: *mut Producer,
    consumer: *mut Consumer,
}

impl Data {
    /// The producer's next batch.
    fn given(&self) -> FFI_ArrowArray {
        let mut out = std::mem::MaybeUninit::<DeviceArray>::uninit();
        unsafe {
            ((*self.producer).give)(self.producer, out.as_mut_ptr());
            out.assume_init().array
        }
    }

    /// Has the consumer release an array.
    fn take(&self, mut array: FFI_ArrowArray) {
        unsafe { ((*self.consumer).take)(self.consumer, &mut array) }
    }

    /// Has the consumer read a stream: returns the number of batches.
    fn read(&self, mut stream: FFI_ArrowArrayStream) -> i64 {
        unsafe { ((*self.consumer).read)(self.consumer, &mut stream) }
    }
}

type Run = fn(&Data, i64) -> Result<(), ArrowError>;

struct Operation {
    data: Data,
    run: Box<dyn Fn(&Data, i64) -> Result<(), ArrowError>>,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

fn failed(err: ArrowError) {
    let text = CString::new(err.to_string()).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

#[no_mangle]
pub extern "C" fn peer_version() -> *const c_char {
    c"60.1.0".as_ptr() // as Cargo.toml pins it; the crates do not tell
}

#[no_mangle]
pub extern "C" fn peer_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

fn open(
    name: &str,
    schema: FFI_ArrowSchema,
    array: FFI_ArrowArray,
    producer: *mut Producer,
    consumer: *mut Consumer,
) -> Result<Option<Operation>, ArrowError> {
    let schema = Arc::new(Schema::try_from(&schema)?);
    let data_type = DataType::Struct(schema.fields().clone());
    let imported = unsafe { from_ffi_and_data_type(array, data_type.clone())? };
    let batch = RecordBatch::from(StructArray::from(imported));
    let data = Data { schema, data_type, batch, producer, consumer };
    Ok(batch::operation(name, &data)
        .or_else(|| stream::operation(name))
        .map(|run| Operation { data, run }))
}

/// # Safety
/// As peer.h says.
#[no_mangle]
pub unsafe extern "C" fn peer_open(
    name: *const c_char,
    schema: *mut FFI_ArrowSchema,
    batch: *mut DeviceArray,
    producer: *mut Producer,
    consumer: *mut Consumer,
) -> *mut c_void {
    LAST_ERROR.with(|last| *last.borrow_mut() = CString::default());
    let name = CStr::from_ptr(name).to_str().unwrap_or("");
    let schema = FFI_ArrowSchema::from_raw(schema);
    let array = FFI_ArrowArray::from_raw(&raw mut (*batch).array);
    match open(name, schema, array, producer, consumer) {
        Ok(Some(operation)) => Box::into_raw(Box::new(operation)).cast(),
        Ok(None) => std::ptr::null_mut(),
        Err(err) => {
            failed(err);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// As peer.h says.
#[no_mangle]
pub unsafe extern "C" fn peer_run(operation: *mut c_void, n: i64) -> c_int {
    let operation = &*operation.cast::<Operation>();
    match (operation.run)(&operation.data, n) {
        Ok(()) => 0,
        Err(err) => {
            failed(err);
            1
        }
    }
}

/// # Safety
/// As peer.h says.
#[no_mangle]
pub unsafe extern "C" fn peer_close(operation: *mut c_void) {
    drop(Box::from_raw(operation.cast::<Operation>()));
}
