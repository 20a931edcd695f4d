/* The C interface of ovir: read, compile, set inputs, infer, get outputs.
 *
 * Functions that return a pointer return NULL on failure, functions that return an int return 0 on success; what went
 * wrong is told by ovir_last_error. Handles may be freed in any order: a request keeps what it needs alive. Models and
 * compiled models may be shared between threads; a request is for one thread at a time. Names are UTF-8.
 */
#ifndef OVIR_H
#define OVIR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A model that was read and validated. */
typedef struct ovir_model ovir_model;
/* A model that is ready to run. */
typedef struct ovir_compiled ovir_compiled;
/* Inputs, outputs and state of one inference at a time. */
typedef struct ovir_request ovir_request;

/* The text of the last failure on this thread, never NULL. It is valid until the next failure on this thread. */
const char* ovir_last_error(void);

/* Reads a model. The weights stand beside it with the ending .bin unless bin_path_or_null names them. */
ovir_model* ovir_read_model(const char* xml_path, const char* bin_path_or_null);

/* Makes a model ready to run on some threads; 0 means all that are available. */
ovir_compiled* ovir_compile_model(ovir_model* model, size_t threads);

/* The same with properties, a name and a value each, as OpenVINO's CPU plugin has them: INFERENCE_PRECISION_HINT is "f32" or
 * "bf16", which rounds the operands of products, convolutions and attention where the processor has instructions for it;
 * DYNAMIC_QUANTIZATION_GROUP_SIZE is the most values that are quantised together in products with constants of four or eight
 * bits, or "0"; INFERENCE_NUM_THREADS goes before threads. */
ovir_compiled* ovir_compile_model_with_properties(ovir_model* model, size_t threads, const char* const* properties,
                                                  size_t count);

/* A request with memory and state of its own. */
ovir_request* ovir_create_request(ovir_compiled* compiled);

/* Sets an input, by tensor name, friendly name or index. The data is copied: `bytes` bytes of dense row-major elements
 * of the type that element_type names ("f32", "i64", "boolean"...; "FP32" and "float32" are understood). */
int ovir_set_input(ovir_request* request, const char* name_or_index, const char* element_type, const size_t* shape,
                   size_t rank, const void* data, size_t bytes);

/* Runs one inference. */
int ovir_infer(ovir_request* request);

/* The number of outputs; 0 for NULL. */
size_t ovir_output_count(ovir_request* request);

/* The name of output i, different for each: the lexicographically first tensor name, else the producer's friendly
 * name, with ".port" if it has several outputs, and "#k" on a collision. Valid until the request is freed. */
const char* ovir_output_name(ovir_request* request, size_t i);

/* Output i of the last inference. All pointers are valid until the next inference of the request, or its end. */
int ovir_output(ovir_request* request, size_t i, const char** element_type, const size_t** shape, size_t* rank,
                const void** data, size_t* bytes);

/* Sets all variables back to the beginning. */
int ovir_reset_state(ovir_request* request);

/* These free a handle; NULL is allowed. */
void ovir_model_free(ovir_model* model);
void ovir_compiled_free(ovir_compiled* compiled);
void ovir_request_free(ovir_request* request);

#ifdef __cplusplus
}
#endif

#endif
