//! A small C interface to ovir: load, set, infer, get, error text.
//!
//! `include/ovir.h` declares it for C. Functions that return a pointer return null on failure, functions that return an
//! integer return 0 on success; [`ovir_last_error`] tells what went wrong. No panic crosses the boundary.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr;

use ovir::{CompileOptions, CompiledModel, Core, ElementType, InferRequest, Model, ReadOptions, Shape, Tensor};

/// The largest rank that is read from a caller's memory.
const MAX_RANK: usize = ovir::tensor::MAX_RANK;

/// A model that was read and validated.
#[allow(non_camel_case_types)]
pub struct ovir_model {
    core: Core,
    model: Model,
}

/// A model that is ready to run.
#[allow(non_camel_case_types)]
pub struct ovir_compiled {
    compiled: CompiledModel,
    names: Vec<CString>,
}

/// Inputs, outputs and state of one inference at a time.
#[allow(non_camel_case_types)]
pub struct ovir_request {
    request: InferRequest,
    names: Vec<CString>,
    /// The outputs that were looked at since the last inference; what callers point at lives here.
    outputs: Vec<Option<Output>>,
}

/// An output as C sees it.
struct Output {
    tensor: Tensor,
    element_type: CString,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// The text of the last failure on this thread, never null; empty if there was none. It is valid until the next failure
/// on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn ovir_last_error() -> *const c_char {
    LAST_ERROR.with(|error| error.borrow().as_ptr())
}

/// Reads a model. The weights stand beside it with the ending `.bin` unless `bin_path_or_null` names them.
///
/// # Safety
/// Both pointers are null or point to texts that end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_read_model(xml_path: *const c_char, bin_path_or_null: *const c_char) -> *mut ovir_model {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises texts that end with a zero byte; null is checked inside.
        let (xml, bin) = unsafe { (path(xml_path)?, path(bin_path_or_null)?) };
        let xml = xml.ok_or("the path of the model is null")?;
        let core = Core::new();
        let options = ReadOptions { weights: bin, ..ReadOptions::default() };
        let model = core.read_model_with(xml, &options).map_err(|error| error.to_string())?;
        Ok(Box::into_raw(Box::new(ovir_model { core, model })))
    })
}

/// Makes a model ready to run on some threads; 0 means all that are available.
///
/// # Safety
/// `model` is null or a handle of [`ovir_read_model`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_compile_model(model: *mut ovir_model, threads: usize) -> *mut ovir_compiled {
    // SAFETY: the caller promises a live handle or null, and there are no properties.
    unsafe { ovir_compile_model_with_properties(model, threads, ptr::null(), 0) }
}

/// As [`ovir_compile_model`] with `count` properties, a name and a value each, as OpenVINO's CPU plugin has them:
/// `INFERENCE_PRECISION_HINT` is `f32` or `bf16`, `DYNAMIC_QUANTIZATION_GROUP_SIZE` a number, `INFERENCE_NUM_THREADS` goes
/// before `threads`.
///
/// # Safety
/// `model` is null or a handle of [`ovir_read_model`] that was not freed. `properties` points to twice as many texts that end
/// with a zero byte as there are properties; it may be null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_compile_model_with_properties(
    model: *mut ovir_model,
    threads: usize,
    properties: *const *const c_char,
    count: usize,
) -> *mut ovir_compiled {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises a live handle or null; models are only read, so sharing between threads is sound.
        let model = unsafe { model.as_ref() }.ok_or("the model is null")?;
        let mut options = CompileOptions { threads, ..CompileOptions::default() };
        if properties.is_null() && count > 0 {
            return Err("the properties are null".into());
        }
        let text = |index: usize| {
            // SAFETY: the caller promises so many texts that end with a zero byte; a null one is checked.
            let text = unsafe { properties.wrapping_add(index).read() };
            match text.is_null() {
                true => Err("a property is null"),
                // SAFETY: as above.
                false => Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy()),
            }
        };
        for index in 0..count {
            let (name, value) = (text(2 * index)?, text(2 * index + 1)?);
            options.set_property(&name, &value).map_err(|error| error.to_string())?;
        }
        let compiled = model.core.compile_model(&model.model, &options).map_err(|error| error.to_string())?;
        let names = model.model.output_keys().into_iter().map(self::text).collect();
        Ok(Box::into_raw(Box::new(ovir_compiled { compiled, names })))
    })
}

/// A request with memory and state of its own.
///
/// # Safety
/// `compiled` is null or a handle of [`ovir_compile_model`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_create_request(compiled: *mut ovir_compiled) -> *mut ovir_request {
    guard(ptr::null_mut(), || {
        // SAFETY: the caller promises a live handle or null; compiled models are only read.
        let compiled = unsafe { compiled.as_ref() }.ok_or("the compiled model is null")?;
        let names = compiled.names.clone();
        let outputs = names.iter().map(|_| None).collect();
        let request = compiled.compiled.create_infer_request();
        Ok(Box::into_raw(Box::new(ovir_request { request, names, outputs })))
    })
}

/// Sets an input, by tensor name, friendly name or index. The data is copied: `bytes` bytes of dense row-major elements
/// of the type that `element_type` names.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed and that no other thread uses now. The
/// texts are null or end with a zero byte. `shape` points to `rank` numbers and `data` to `bytes` bytes; they may be
/// null where there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_set_input(
    request: *mut ovir_request,
    name_or_index: *const c_char,
    element_type: *const c_char,
    shape: *const usize,
    rank: usize,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(1, || {
        // SAFETY: the caller promises a live handle that only this thread uses, or null.
        let request = unsafe { request.as_mut() }.ok_or("the request is null")?;
        // SAFETY: the caller promises texts that end with a zero byte; null is checked inside.
        let (name, element_type) = unsafe { (utf8(name_or_index)?, utf8(element_type)?) };
        let name = name.ok_or("the name of the input is null")?;
        let element_type = element_type.ok_or("the element type is null")?;
        let element_type: ElementType = element_type.parse().map_err(|error: ovir::TensorError| error.to_string())?;
        if rank > MAX_RANK {
            return Err(format!("rank {rank} is above the limit of {MAX_RANK}"));
        }
        // SAFETY: the caller promises `rank` numbers and `bytes` bytes; the rank was checked, null is checked inside.
        let (shape, data) = unsafe { (list(shape, rank, "shape")?, list(data.cast::<u8>(), bytes, "data")?) };
        let tensor = Tensor::from_bytes(element_type, Shape::from_slice(shape), data).map_err(|e| e.to_string())?;
        request.request.set_tensor(name, tensor).map_err(|error| error.to_string())?;
        Ok(0)
    })
}

/// Runs one inference.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed and that no other thread uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_infer(request: *mut ovir_request) -> c_int {
    guard(1, || {
        // SAFETY: the caller promises a live handle that only this thread uses, or null.
        let request = unsafe { request.as_mut() }.ok_or("the request is null")?;
        // Outputs that are still held could not lend their memory to the new ones.
        request.outputs.fill_with(|| None);
        request.request.infer().map_err(|error| error.to_string())?;
        Ok(0)
    })
}

/// The number of outputs; 0 for null.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_output_count(request: *mut ovir_request) -> usize {
    guard(0, || {
        // SAFETY: the caller promises a live handle or null.
        let request = unsafe { request.as_ref() }.ok_or("the request is null")?;
        Ok(request.names.len())
    })
}

/// The name of output `i`, different for each; valid until the request is freed.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_output_name(request: *mut ovir_request, i: usize) -> *const c_char {
    guard(ptr::null(), || {
        // SAFETY: the caller promises a live handle or null.
        let request = unsafe { request.as_ref() }.ok_or("the request is null")?;
        Ok(request.names.get(i).ok_or_else(|| no_output(request, i))?.as_ptr())
    })
}

/// Output `i` of the last inference. All pointers are valid until the next inference of the request, or its end.
/// Pointers that are null are not written.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed and that no other thread uses now. The
/// other pointers are null or point to memory that can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_output(
    request: *mut ovir_request,
    i: usize,
    element_type: *mut *const c_char,
    shape: *mut *const usize,
    rank: *mut usize,
    data: *mut *const c_void,
    bytes: *mut usize,
) -> c_int {
    guard(1, || {
        // SAFETY: the caller promises a live handle that only this thread uses, or null.
        let request = unsafe { request.as_mut() }.ok_or("the request is null")?;
        let missing = no_output(request, i);
        let slot = request.outputs.get_mut(i).ok_or(missing)?;
        let output = match slot {
            Some(output) => output,
            None => {
                let tensor = request.request.output_tensor(i).map_err(|error| error.to_string())?;
                if tensor.strings().is_some() {
                    return Err(format!("output {i} holds strings, which this interface does not give"));
                }
                let element_type = text(tensor.element_type().name().to_owned());
                slot.insert(Output { tensor, element_type })
            }
        };
        let sizes: &[usize] = output.tensor.shape();
        let elements = output.tensor.bytes();
        // SAFETY: the caller promises that each pointer is null or can be written; null is checked inside. What is
        // written points into the request's own copy of the output, which lives until the next inference.
        unsafe {
            store(element_type, output.element_type.as_ptr());
            store(shape, sizes.as_ptr());
            store(rank, sizes.len());
            store(data, elements.as_ptr().cast());
            store(bytes, elements.len());
        }
        Ok(0)
    })
}

/// Sets all variables back to the beginning.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed and that no other thread uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_reset_state(request: *mut ovir_request) -> c_int {
    guard(1, || {
        // SAFETY: the caller promises a live handle that only this thread uses, or null.
        let request = unsafe { request.as_mut() }.ok_or("the request is null")?;
        request.request.reset_state().map_err(|error| error.to_string())?;
        Ok(0)
    })
}

/// Frees a model; null is allowed.
///
/// # Safety
/// `model` is null or a handle of [`ovir_read_model`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_model_free(model: *mut ovir_model) {
    // SAFETY: the caller gives the handle back; it was made by `Box::into_raw`.
    guard((), || unsafe { free(model) });
}

/// Frees a compiled model; null is allowed.
///
/// # Safety
/// `compiled` is null or a handle of [`ovir_compile_model`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_compiled_free(compiled: *mut ovir_compiled) {
    // SAFETY: the caller gives the handle back; it was made by `Box::into_raw`.
    guard((), || unsafe { free(compiled) });
}

/// Frees a request; null is allowed.
///
/// # Safety
/// `request` is null or a handle of [`ovir_create_request`] that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ovir_request_free(request: *mut ovir_request) {
    // SAFETY: the caller gives the handle back; it was made by `Box::into_raw`.
    guard((), || unsafe { free(request) });
}

/// Runs a function; a failure or panic becomes the last error of this thread, and `failed` is returned.
fn guard<T>(failed: T, function: impl FnOnce() -> Result<T, String>) -> T {
    // After a panic the request may hold what is half done, which the next inference overwrites.
    let result = catch_unwind(AssertUnwindSafe(function));
    let message = match result {
        Ok(Ok(value)) => return value,
        Ok(Err(message)) => message,
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
            let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            format!("internal defect: {words}")
        }
    };
    LAST_ERROR.with(|error| *error.borrow_mut() = text(message));
    failed
}

fn no_output(request: &ovir_request, index: usize) -> String {
    format!("there is no output {index}; the model has {}", request.names.len())
}

/// A text for C; zero bytes within become U+FFFD.
fn text(text: String) -> CString {
    match CString::new(text) {
        Ok(text) => text,
        Err(error) => {
            let readable = String::from_utf8_lossy(&error.into_vec()).replace('\0', "\u{fffd}");
            CString::new(readable).unwrap_or_default()
        }
    }
}

/// The text behind a pointer; `None` for null.
///
/// # Safety
/// The pointer is null or points to a text that ends with a zero byte and lives as long as the result.
unsafe fn utf8<'t>(pointer: *const c_char) -> Result<Option<&'t str>, String> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, so that the caller promises a text that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| "a text is not UTF-8".to_owned())
}

/// The path behind a pointer; `None` for null.
///
/// # Safety
/// As [`utf8`].
unsafe fn path(pointer: *const c_char) -> Result<Option<PathBuf>, String> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: it is not null, so that the caller promises a text that ends with a zero byte.
        let text = unsafe { CStr::from_ptr(pointer) };
        Ok(Some(PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()))))
    }
    #[cfg(not(unix))]
    {
        // SAFETY: the caller promises the same.
        Ok(unsafe { utf8(pointer)? }.map(PathBuf::from))
    }
}

/// The elements behind a pointer, which may be null where there are none.
///
/// # Safety
/// The pointer is null or points to `count` elements that live as long as the result.
unsafe fn list<'l, T>(pointer: *const T, count: usize, what: &str) -> Result<&'l [T], String> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(format!("the {what} is null"));
    }
    if !pointer.is_aligned() || count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(format!("the {what} is not aligned, or too large"));
    }
    // SAFETY: it is not null, aligned and of a size that slices can have; the caller promises `count` elements.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Writes through a pointer that may be null.
///
/// # Safety
/// The pointer is null or can be written.
unsafe fn store<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: it is not null, so that the caller promises that it can be written.
        unsafe { pointer.write(value) };
    }
}

/// Frees what `Box::into_raw` gave out.
///
/// # Safety
/// The pointer is null or comes from `Box::into_raw` and is not used again.
unsafe fn free<T>(pointer: *mut T) -> Result<(), String> {
    if !pointer.is_null() {
        // SAFETY: it comes from `Box::into_raw` and is given back once.
        drop(unsafe { Box::from_raw(pointer) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    /// `y = x + x`, with a Result for `y` and another one, so that their names collide.
    const XML: &str = r#"<net name="twice" version="11"><layers>
        <layer id="0" name="x" type="Parameter" version="opset1"><data shape="?,2" element_type="f32"/>
            <output><port id="0" precision="FP32" names="x"><dim>-1</dim><dim>2</dim></port></output></layer>
        <layer id="1" name="y" type="Add" version="opset1"><data auto_broadcast="numpy"/>
            <input><port id="0"><dim>-1</dim><dim>2</dim></port><port id="1"><dim>-1</dim><dim>2</dim></port></input>
            <output><port id="2" precision="FP32"><dim>-1</dim><dim>2</dim></port></output></layer>
        <layer id="2" name="r0" type="Result" version="opset1"><input><port id="0"><dim>-1</dim><dim>2</dim></port></input></layer>
        <layer id="3" name="r1" type="Result" version="opset1"><input><port id="0"><dim>-1</dim><dim>2</dim></port></input></layer>
        </layers><edges>
        <edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
        <edge from-layer="0" from-port="0" to-layer="1" to-port="1"/>
        <edge from-layer="1" from-port="2" to-layer="2" to-port="0"/>
        <edge from-layer="1" from-port="2" to-layer="3" to-port="0"/>
        </edges></net>"#;

    fn last_error() -> String {
        // SAFETY: the pointer is never null and lives until the next failure on this thread.
        unsafe { CStr::from_ptr(ovir_last_error()) }.to_str().unwrap().to_owned()
    }

    /// A request for the model above.
    fn request() -> *mut ovir_request {
        let file = std::env::temp_dir().join(format!("ovir-capi-{:?}.xml", std::thread::current().id()));
        std::fs::write(&file, XML).unwrap();
        let path = CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte, and each handle is live until it is freed.
        unsafe {
            let model = ovir_read_model(path.as_ptr(), ptr::null());
            assert!(!model.is_null(), "{}", last_error());
            let (precision, group) =
                (c"INFERENCE_PRECISION_HINT".as_ptr(), c"DYNAMIC_QUANTIZATION_GROUP_SIZE".as_ptr());
            let wrong = [precision, c"FP16".as_ptr()];
            assert!(ovir_compile_model_with_properties(model, 1, wrong.as_ptr(), 1).is_null());
            let expected = "INFERENCE_PRECISION_HINT: f16 is no precision of arithmetic; there are f32 and bf16";
            assert_eq!(last_error(), expected);
            assert!(ovir_compile_model_with_properties(model, 1, ptr::null(), 1).is_null());
            assert!(ovir_compile_model_with_properties(model, 1, [precision, ptr::null()].as_ptr(), 1).is_null());
            let properties = [precision, c"bf16".as_ptr(), group, c"32".as_ptr()];
            let compiled = ovir_compile_model_with_properties(model, 1, properties.as_ptr(), 2);
            assert!(!compiled.is_null(), "{}", last_error());
            ovir_compiled_free(compiled);
            let compiled = ovir_compile_model(model, 1);
            assert!(!compiled.is_null(), "{}", last_error());
            ovir_model_free(model);
            let request = ovir_create_request(compiled);
            ovir_compiled_free(compiled);
            std::fs::remove_file(file).unwrap();
            request
        }
    }

    fn set(request: *mut ovir_request, name: &CStr, element_type: &CStr, shape: &[usize], values: &[f32]) -> c_int {
        let (data, bytes) = (values.as_ptr().cast(), size_of_val(values));
        // SAFETY: texts end with zero bytes, and lengths are those of the slices.
        unsafe {
            ovir_set_input(request, name.as_ptr(), element_type.as_ptr(), shape.as_ptr(), shape.len(), data, bytes)
        }
    }

    fn output(request: *mut ovir_request, index: usize) -> Result<(String, Vec<usize>, Vec<f32>), String> {
        let (mut element_type, mut shape, mut rank, mut data, mut bytes) =
            (ptr::null(), ptr::null(), 0, ptr::null(), 0);
        // SAFETY: the handle is live and the pointers can be written; what they are set to lives until the next
        // inference, and the data is aligned because outputs are.
        unsafe {
            if ovir_output(request, index, &mut element_type, &mut shape, &mut rank, &mut data, &mut bytes) != 0 {
                return Err(last_error());
            }
            let values = list(data.cast::<f32>(), bytes / 4, "data")?.to_vec();
            let name = CStr::from_ptr(element_type).to_str().unwrap().to_owned();
            Ok((name, list(shape, rank, "shape")?.to_vec(), values))
        }
    }

    #[test]
    fn a_model_runs() {
        let request = request();
        assert_eq!(output(request, 0).unwrap_err(), "output 0 has no value; run an inference first");
        for (rows, name) in [(1usize, c"x"), (2, c"0")] {
            let values: Vec<f32> = (0..2 * rows).map(|v| v as f32).collect();
            assert_eq!(set(request, name, c"FP32", &[rows, 2], &values), 0, "{}", last_error());
            // SAFETY: the handle is live.
            assert_eq!(unsafe { ovir_infer(request) }, 0, "{}", last_error());
            let doubled: Vec<f32> = values.iter().map(|v| 2.0 * v).collect();
            assert_eq!(output(request, 1).unwrap(), ("f32".to_owned(), vec![rows, 2], doubled));
        }
        // SAFETY: the handle is live, and freed last.
        unsafe {
            assert_eq!(ovir_output_count(request), 2);
            let names = [0, 1].map(|i| CStr::from_ptr(ovir_output_name(request, i)).to_str().unwrap().to_owned());
            assert_eq!(names, ["y", "y#1"]);
            assert_eq!(ovir_reset_state(request), 0);
            ovir_request_free(request);
        }
    }

    #[test]
    fn wrong_use_is_told() {
        let request = request();
        assert_eq!(set(request, c"z", c"f32", &[1, 2], &[0.0; 2]), 1);
        assert_eq!(last_error(), "there is no input \"z\"; there is \"x\"");
        assert_eq!(set(request, c"x", c"f33", &[1, 2], &[0.0; 2]), 1);
        assert_eq!(last_error(), "`f33` is not an element type");
        assert_eq!(set(request, c"x", c"f32", &[1, 2], &[0.0; 3]), 1);
        assert_eq!(last_error(), "a tensor f32[1,2] takes 8 bytes, not 12");
        assert_eq!(set(request, c"x", c"f32", &[3], &[0.0; 3]), 1);
        assert_eq!(last_error(), "input \"x\" has shape [?,2], the given tensor has [3]");
        assert_eq!(set(request, c"x", c"f32", &[1; 33], &[0.0]), 1);
        // SAFETY: the handle is live, and freed last.
        unsafe {
            assert_eq!(ovir_infer(request), 1);
            assert_eq!(last_error(), "input \"x\" was not given");
            assert!(ovir_output_name(request, 2).is_null());
            assert_eq!(last_error(), "there is no output 2; the model has 2");
            ovir_request_free(request);
        }
    }

    #[test]
    fn null_is_checked() {
        let null = ptr::null_mut();
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert!(ovir_read_model(ptr::null(), ptr::null()).is_null());
            assert_eq!(last_error(), "the path of the model is null");
            assert!(ovir_read_model(c"no/such/file.xml".as_ptr(), ptr::null()).is_null());
            assert!(last_error().starts_with("no/such/file.xml: "), "{}", last_error());
            assert!(ovir_compile_model(ptr::null_mut(), 0).is_null());
            assert!(ovir_compile_model_with_properties(ptr::null_mut(), 0, ptr::null(), 0).is_null());
            assert!(ovir_create_request(ptr::null_mut()).is_null());
            assert_eq!(ovir_infer(null), 1);
            assert_eq!(ovir_reset_state(null), 1);
            assert_eq!(ovir_output_count(null), 0);
            assert!(ovir_output_name(null, 0).is_null());
            let nothing = ptr::null_mut();
            assert_eq!(
                ovir_output(null, 0, ptr::null_mut(), nothing, ptr::null_mut(), ptr::null_mut(), ptr::null_mut()),
                1
            );
            assert_eq!(ovir_set_input(null, ptr::null(), ptr::null(), ptr::null(), 0, ptr::null(), 0), 1);
            ovir_model_free(ptr::null_mut());
            ovir_compiled_free(ptr::null_mut());
            ovir_request_free(null);
        }
    }

    #[test]
    fn panics_stay_inside() {
        let result = guard(7, || -> Result<i32, String> { panic!("on purpose") });
        assert_eq!((result, last_error()), (7, "internal defect: on purpose".to_owned()));
        assert_eq!(text("a\0b".to_owned()).to_str().unwrap(), "a\u{fffd}b");
    }
}
