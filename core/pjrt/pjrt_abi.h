/* The part of the PJRT C ABI that this library uses, in its own words.
 *
 * Names are PJRT's. Every struct and every slot comes from the two lists below, so that one test
 * can compare sizes, offsets, and order with a published description of the ABI. The ABI only
 * grows at the end: an older plugin's table is shorter, a newer plugin's is longer, and both work
 * when the major version is equal.
 *
 * The `struct_size` of an argument struct is the end of its last field, not its sizeof. */
#ifndef TT_PJRT_ABI_H
#define TT_PJRT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PJRT_API_MAJOR 0
#define PJRT_API_MINOR 114 /* what the declarations below are taken from */

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;             /* compiled, on no device */
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable; /* compiled, ready to run */
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;

/* What a callback of ours returns an error with: code, words, and their size. */
typedef PJRT_Error *(*PJRT_CallbackError)(int code, const char *message, size_t message_size);
typedef void (*PJRT_KeyValueGetCallback_ValueDeleter)(char *value);
struct PJRT_KeyValueGetCallback_Args;
struct PJRT_KeyValueTryGetCallback_Args;
struct PJRT_KeyValuePutCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(struct PJRT_KeyValueGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(struct PJRT_KeyValueTryGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(struct PJRT_KeyValuePutCallback_Args *args);

typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg);
typedef void (*PJRT_SerializedExecutable_Deleter)(PJRT_SerializedExecutable *executable);

/* name, number */
#define TT_PJRT_CONSTANTS(X)                                                                       \
  X(PJRT_NamedValue_kString, 0)                                                                    \
  X(PJRT_NamedValue_kInt64, 1)                                                                     \
  X(PJRT_NamedValue_kInt64List, 2)                                                                 \
  X(PJRT_NamedValue_kFloat, 3)                                                                     \
  X(PJRT_NamedValue_kBool, 4)                                                                      \
  X(PJRT_HostBufferSemantics_kImmutableOnlyDuringCall, 0)                                          \
  X(PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes, 1)                                  \
  X(PJRT_HostBufferSemantics_kImmutableZeroCopy, 2)                                                \
  X(PJRT_Buffer_MemoryLayout_Type_Tiled, 0)                                                        \
  X(PJRT_Extension_Type_Gpu_Custom_Call, 0)
enum {
#define X(name, number) name = number,
  TT_PJRT_CONSTANTS(X)
#undef X
};

/* Which one holds is said by PJRT_NamedValue.type. */
typedef union PJRT_NamedValue_Value {
  const char *string_value;
  int64_t int64_value;
  const int64_t *int64_array_value;
  float float_value;
  bool bool_value;
} PJRT_NamedValue_Value;

/* clang-format off */

/* -- Structs: STRUCT(name, last field, other fields...), after the two that all begin with -- */
#define TT_PJRT_STRUCTS(STRUCT, FIELD)                                                             \
  STRUCT(PJRT_NamedValue, value_size,                                                              \
    FIELD(const char *, name) FIELD(size_t, name_size) FIELD(int, type)                            \
    FIELD(PJRT_NamedValue_Value, value) FIELD(size_t, value_size))                                 \
  STRUCT(PJRT_Api_Version, minor_version, FIELD(int, major_version) FIELD(int, minor_version))     \
  STRUCT(PJRT_Error_Destroy_Args, error, FIELD(PJRT_Error *, error))                               \
  STRUCT(PJRT_Error_Message_Args, message_size,                                                    \
    FIELD(const PJRT_Error *, error) FIELD(const char *, message) FIELD(size_t, message_size))     \
  STRUCT(PJRT_Error_GetCode_Args, code, FIELD(const PJRT_Error *, error) FIELD(int, code))         \
  STRUCT(PJRT_Plugin_Initialize_Args, extension_start, )                                           \
  STRUCT(PJRT_Plugin_Attributes_Args, num_attributes,                                              \
    FIELD(const PJRT_NamedValue *, attributes) FIELD(size_t, num_attributes))                      \
  STRUCT(PJRT_Event_Destroy_Args, event, FIELD(PJRT_Event *, event))                               \
  STRUCT(PJRT_Event_IsReady_Args, is_ready, FIELD(PJRT_Event *, event) FIELD(bool, is_ready))      \
  STRUCT(PJRT_Event_Await_Args, event, FIELD(PJRT_Event *, event))                                 \
  STRUCT(PJRT_Event_OnReady_Args, user_arg,                                                        \
    FIELD(PJRT_Event *, event) FIELD(PJRT_Event_OnReadyCallback, callback)                         \
    FIELD(void *, user_arg))                                                                       \
  STRUCT(PJRT_Client_Create_Args, kv_try_get_user_arg,                                             \
    FIELD(const PJRT_NamedValue *, create_options) FIELD(size_t, num_options)                      \
    FIELD(PJRT_KeyValueGetCallback, kv_get_callback) FIELD(void *, kv_get_user_arg)                \
    FIELD(PJRT_KeyValuePutCallback, kv_put_callback) FIELD(void *, kv_put_user_arg)                \
    FIELD(PJRT_Client *, client) FIELD(PJRT_KeyValueTryGetCallback, kv_try_get_callback)           \
    FIELD(void *, kv_try_get_user_arg))                                                            \
  STRUCT(PJRT_KeyValueGetCallback_Args, value_deleter_callback,                                    \
    FIELD(const char *, key) FIELD(size_t, key_size) FIELD(int, timeout_in_ms)                     \
    FIELD(PJRT_CallbackError *, callback_error) FIELD(void *, user_arg) FIELD(char *, value)       \
    FIELD(size_t, value_size)                                                                      \
    FIELD(PJRT_KeyValueGetCallback_ValueDeleter, value_deleter_callback))                          \
  STRUCT(PJRT_KeyValueTryGetCallback_Args, value_deleter_callback,                                 \
    FIELD(const char *, key) FIELD(size_t, key_size) FIELD(PJRT_CallbackError *, callback_error)   \
    FIELD(void *, user_arg) FIELD(char *, value) FIELD(size_t, value_size)                         \
    FIELD(PJRT_KeyValueGetCallback_ValueDeleter, value_deleter_callback))                          \
  STRUCT(PJRT_KeyValuePutCallback_Args, user_arg,                                                  \
    FIELD(const char *, key) FIELD(size_t, key_size) FIELD(const char *, value)                    \
    FIELD(size_t, value_size) FIELD(PJRT_CallbackError *, callback_error)                          \
    FIELD(void *, user_arg))                                                                       \
  STRUCT(PJRT_Client_Devices_Args, num_devices,                                                    \
    FIELD(PJRT_Client *, client) FIELD(PJRT_Device *const *, devices) FIELD(size_t, num_devices))  \
  STRUCT(PJRT_Client_Destroy_Args, client, FIELD(PJRT_Client *, client))                           \
  STRUCT(PJRT_Client_PlatformName_Args, platform_name_size,                                        \
    FIELD(PJRT_Client *, client) FIELD(const char *, platform_name)                                \
    FIELD(size_t, platform_name_size))                                                             \
  STRUCT(PJRT_Client_PlatformVersion_Args, platform_version_size,                                  \
    FIELD(PJRT_Client *, client) FIELD(const char *, platform_version)                             \
    FIELD(size_t, platform_version_size))                                                          \
  STRUCT(PJRT_Client_AddressableDevices_Args, num_addressable_devices,                             \
    FIELD(PJRT_Client *, client) FIELD(PJRT_Device *const *, addressable_devices)                  \
    FIELD(size_t, num_addressable_devices))                                                        \
  STRUCT(PJRT_DeviceDescription_Id_Args, id,                                                       \
    FIELD(PJRT_DeviceDescription *, device_description) FIELD(int, id))                            \
  STRUCT(PJRT_DeviceDescription_Kind_Args, device_kind_size,                                       \
    FIELD(PJRT_DeviceDescription *, device_description) FIELD(const char *, device_kind)           \
    FIELD(size_t, device_kind_size))                                                               \
  STRUCT(PJRT_DeviceDescription_ToString_Args, to_string_size,                                     \
    FIELD(PJRT_DeviceDescription *, device_description) FIELD(const char *, to_string)             \
    FIELD(size_t, to_string_size))                                                                 \
  STRUCT(PJRT_Device_GetDescription_Args, device_description,                                      \
    FIELD(PJRT_Device *, device) FIELD(PJRT_DeviceDescription *, device_description))              \
  STRUCT(PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set,                                \
    FIELD(PJRT_Device *, device) FIELD(int64_t, bytes_in_use) FIELD(int64_t, peak_bytes_in_use)    \
    FIELD(bool, peak_bytes_in_use_is_set) FIELD(int64_t, num_allocs)                               \
    FIELD(bool, num_allocs_is_set) FIELD(int64_t, largest_alloc_size)                              \
    FIELD(bool, largest_alloc_size_is_set) FIELD(int64_t, bytes_limit)                             \
    FIELD(bool, bytes_limit_is_set) FIELD(int64_t, bytes_reserved)                                 \
    FIELD(bool, bytes_reserved_is_set) FIELD(int64_t, peak_bytes_reserved)                         \
    FIELD(bool, peak_bytes_reserved_is_set) FIELD(int64_t, bytes_reservable_limit)                 \
    FIELD(bool, bytes_reservable_limit_is_set) FIELD(int64_t, largest_free_block_bytes)            \
    FIELD(bool, largest_free_block_bytes_is_set) FIELD(int64_t, pool_bytes)                        \
    FIELD(bool, pool_bytes_is_set) FIELD(int64_t, peak_pool_bytes)                                 \
    FIELD(bool, peak_pool_bytes_is_set) FIELD(int64_t, peak_allocated_bytes)                       \
    FIELD(bool, peak_allocated_bytes_is_set))                                                      \
  STRUCT(PJRT_Program, format_size,                                                                \
    FIELD(char *, code) FIELD(size_t, code_size) FIELD(const char *, format)                       \
    FIELD(size_t, format_size))                                                                    \
  STRUCT(PJRT_Client_Compile_Args, executable,                                                     \
    FIELD(PJRT_Client *, client) FIELD(const PJRT_Program *, program)                              \
    FIELD(const char *, compile_options) FIELD(size_t, compile_options_size)                       \
    FIELD(PJRT_LoadedExecutable *, executable))                                                    \
  STRUCT(PJRT_Compile_Args, executable,                                                            \
    FIELD(const PJRT_TopologyDescription *, topology) FIELD(const PJRT_Program *, program)         \
    FIELD(const char *, compile_options) FIELD(size_t, compile_options_size)                       \
    FIELD(PJRT_Client *, client) FIELD(PJRT_Executable *, executable))                             \
  STRUCT(PJRT_Executable_Destroy_Args, executable, FIELD(PJRT_Executable *, executable))           \
  STRUCT(PJRT_Executable_NumOutputs_Args, num_outputs,                                             \
    FIELD(PJRT_Executable *, executable) FIELD(size_t, num_outputs))                               \
  STRUCT(PJRT_Executable_OutputElementTypes_Args, num_output_types,                                \
    FIELD(PJRT_Executable *, executable) FIELD(int *, output_types)                                \
    FIELD(size_t, num_output_types))                                                               \
  STRUCT(PJRT_Executable_OutputDimensions_Args, dim_sizes,                                         \
    FIELD(PJRT_Executable *, executable) FIELD(size_t, num_outputs) FIELD(const int64_t *, dims)   \
    FIELD(const size_t *, dim_sizes))                                                              \
  STRUCT(PJRT_Executable_GetCostAnalysis_Args, properties,                                         \
    FIELD(PJRT_Executable *, executable) FIELD(size_t, num_properties)                             \
    FIELD(const PJRT_NamedValue *, properties))                                                    \
  STRUCT(PJRT_Executable_OptimizedProgram_Args, program,                                           \
    FIELD(PJRT_Executable *, executable) FIELD(PJRT_Program *, program))                           \
  STRUCT(PJRT_Executable_GetCompiledMemoryStats_Args, peak_unpadded_heap_bytes,                    \
    FIELD(PJRT_Executable *, executable) FIELD(int64_t, generated_code_size_in_bytes)              \
    FIELD(int64_t, argument_size_in_bytes) FIELD(int64_t, output_size_in_bytes)                    \
    FIELD(int64_t, alias_size_in_bytes) FIELD(int64_t, temp_size_in_bytes)                         \
    FIELD(int64_t, host_generated_code_size_in_bytes) FIELD(int64_t, host_argument_size_in_bytes)  \
    FIELD(int64_t, host_output_size_in_bytes) FIELD(int64_t, host_alias_size_in_bytes)             \
    FIELD(int64_t, host_temp_size_in_bytes) FIELD(int64_t, peak_memory_in_bytes)                   \
    FIELD(int64_t, total_size_in_bytes) FIELD(int64_t, total_allocation_bytes)                     \
    FIELD(int64_t, indefinite_allocations) FIELD(int64_t, peak_unpadded_heap_bytes))               \
  STRUCT(PJRT_Executable_Serialize_Args, serialized_executable_deleter,                            \
    FIELD(const PJRT_Executable *, executable) FIELD(const char *, serialized_bytes)               \
    FIELD(size_t, serialized_bytes_size)                                                           \
    FIELD(PJRT_SerializedExecutable *, serialized_executable)                                      \
    FIELD(PJRT_SerializedExecutable_Deleter, serialized_executable_deleter))                       \
  STRUCT(PJRT_Executable_DeserializeAndLoad_Args, load_options,                                    \
    FIELD(PJRT_Client *, client) FIELD(const char *, serialized_executable)                        \
    FIELD(size_t, serialized_executable_size) FIELD(PJRT_LoadedExecutable *, loaded_executable)    \
    FIELD(const char *, overridden_serialized_compile_options)                                     \
    FIELD(size_t, overridden_serialized_compile_options_size) FIELD(void *, load_options))         \
  STRUCT(PJRT_LoadedExecutable_Destroy_Args, executable,                                           \
    FIELD(PJRT_LoadedExecutable *, executable))                                                    \
  STRUCT(PJRT_LoadedExecutable_GetExecutable_Args, executable,                                     \
    FIELD(PJRT_LoadedExecutable *, loaded_executable) FIELD(PJRT_Executable *, executable))        \
  STRUCT(PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices,                   \
    FIELD(PJRT_LoadedExecutable *, executable) FIELD(PJRT_Device *const *, addressable_devices)    \
    FIELD(size_t, num_addressable_devices))                                                        \
  STRUCT(PJRT_ExecuteOptions, num_hlo_output_callbacks,                                            \
    FIELD(void *, send_callbacks) FIELD(void *, recv_callbacks) FIELD(size_t, num_send_ops)        \
    FIELD(size_t, num_recv_ops) FIELD(int, launch_id)                                              \
    FIELD(const int64_t *, non_donatable_input_indices)                                            \
    FIELD(size_t, num_non_donatable_input_indices) FIELD(void *, context)                          \
    FIELD(const char *, call_location) FIELD(size_t, num_tasks) FIELD(int *, task_ids)             \
    FIELD(int64_t *, incarnation_ids) FIELD(void *, multi_slice_config)                            \
    FIELD(bool, use_major_to_minor_data_layout_for_callbacks) FIELD(void *, hlo_output_callbacks)  \
    FIELD(size_t, num_hlo_output_callbacks))                                                       \
  STRUCT(PJRT_LoadedExecutable_Execute_Args, execute_device,                                       \
    FIELD(PJRT_LoadedExecutable *, executable) FIELD(PJRT_ExecuteOptions *, options)               \
    FIELD(PJRT_Buffer *const *const *, argument_lists) FIELD(size_t, num_devices)                  \
    FIELD(size_t, num_args) FIELD(PJRT_Buffer **const *, output_lists)                             \
    FIELD(PJRT_Event **, device_complete_events) FIELD(PJRT_Device *, execute_device))             \
  STRUCT(PJRT_Buffer_MemoryLayout_Tiled, num_tiles,                                                \
    FIELD(const int64_t *, minor_to_major) FIELD(size_t, minor_to_major_size)                      \
    FIELD(const int64_t *, tile_dims) FIELD(const size_t *, tile_dim_sizes)                        \
    FIELD(size_t, num_tiles))                                                                      \
  STRUCT(PJRT_Buffer_MemoryLayout, type,                                                           \
    FIELD(PJRT_Buffer_MemoryLayout_Tiled, tiled) FIELD(int, type))                                 \
  STRUCT(PJRT_Client_BufferFromHostBuffer_Args, buffer,                                            \
    FIELD(PJRT_Client *, client) FIELD(const void *, data) FIELD(int, type)                        \
    FIELD(const int64_t *, dims) FIELD(size_t, num_dims) FIELD(const int64_t *, byte_strides)      \
    FIELD(size_t, num_byte_strides) FIELD(int, host_buffer_semantics)                              \
    FIELD(PJRT_Device *, device) FIELD(void *, memory)                                             \
    FIELD(PJRT_Buffer_MemoryLayout *, device_layout) FIELD(PJRT_Event *, done_with_host_buffer)    \
    FIELD(PJRT_Buffer *, buffer))                                                                  \
  STRUCT(PJRT_Client_CreateUninitializedBuffer_Args, buffer,                                       \
    FIELD(PJRT_Client *, client) FIELD(const int64_t *, shape_dims)                                \
    FIELD(size_t, shape_num_dims) FIELD(int, shape_element_type)                                   \
    FIELD(PJRT_Buffer_MemoryLayout *, shape_layout) FIELD(PJRT_Device *, device)                   \
    FIELD(void *, memory) FIELD(PJRT_Buffer *, buffer))                                            \
  STRUCT(PJRT_Buffer_Destroy_Args, buffer, FIELD(PJRT_Buffer *, buffer))                           \
  STRUCT(PJRT_Buffer_IsDeleted_Args, is_deleted,                                                   \
    FIELD(PJRT_Buffer *, buffer) FIELD(bool, is_deleted))                                          \
  STRUCT(PJRT_Buffer_IsOnCpu_Args, is_on_cpu,                                                      \
    FIELD(PJRT_Buffer *, buffer) FIELD(bool, is_on_cpu))                                           \
  STRUCT(PJRT_Buffer_OnDeviceSizeInBytes_Args, on_device_size_in_bytes,                            \
    FIELD(PJRT_Buffer *, buffer) FIELD(size_t, on_device_size_in_bytes))                           \
  STRUCT(PJRT_Buffer_CopyToDevice_Args, dst_buffer,                                                \
    FIELD(PJRT_Buffer *, buffer) FIELD(PJRT_Device *, dst_device)                                  \
    FIELD(PJRT_Buffer *, dst_buffer))                                                              \
  STRUCT(PJRT_Buffer_ToHostBuffer_Args, event,                                                     \
    FIELD(PJRT_Buffer *, src) FIELD(PJRT_Buffer_MemoryLayout *, host_layout) FIELD(void *, dst)    \
    FIELD(size_t, dst_size) FIELD(PJRT_Event *, event))                                            \
  STRUCT(PJRT_Buffer_ReadyEvent_Args, event,                                                       \
    FIELD(PJRT_Buffer *, buffer) FIELD(PJRT_Event *, event))                                       \
  STRUCT(PJRT_Buffer_UnsafePointer_Args, buffer_pointer,                                           \
    FIELD(PJRT_Buffer *, buffer) FIELD(uintptr_t, buffer_pointer))                                 \
  STRUCT(PJRT_TopologyDescription_Create_Args, topology,                                           \
    FIELD(const char *, topology_name) FIELD(size_t, topology_name_size)                           \
    FIELD(const PJRT_NamedValue *, create_options) FIELD(size_t, num_options)                      \
    FIELD(PJRT_TopologyDescription *, topology))                                                   \
  STRUCT(PJRT_TopologyDescription_Destroy_Args, topology,                                          \
    FIELD(PJRT_TopologyDescription *, topology))                                                   \
  STRUCT(PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions,                    \
    FIELD(const PJRT_TopologyDescription *, topology)                                              \
    FIELD(PJRT_DeviceDescription *const *, descriptions) FIELD(size_t, num_descriptions))

/* -- The function table, in its order. NEED: a plugin without it is refused; MAYBE: used when the
 * plugin has it; FREE: only holds its place; VOID: needed, returns nothing. -- */
#define TT_PJRT_SLOTS(NEED, MAYBE, FREE, VOID)                                                     \
  VOID(Error_Destroy) VOID(Error_Message) NEED(Error_GetCode)                                      \
  NEED(Plugin_Initialize) MAYBE(Plugin_Attributes)                                                 \
  NEED(Event_Destroy) NEED(Event_IsReady) FREE(Event_Error) NEED(Event_Await) NEED(Event_OnReady)  \
  NEED(Client_Create) NEED(Client_Destroy) NEED(Client_PlatformName) FREE(Client_ProcessIndex)     \
  NEED(Client_PlatformVersion) MAYBE(Client_Devices) NEED(Client_AddressableDevices)               \
  FREE(Client_LookupDevice) FREE(Client_LookupAddressableDevice) FREE(Client_AddressableMemories)  \
  NEED(Client_Compile) FREE(Client_DefaultDeviceAssignment) NEED(Client_BufferFromHostBuffer)      \
  NEED(DeviceDescription_Id) FREE(DeviceDescription_ProcessIndex)                                  \
  FREE(DeviceDescription_Attributes) NEED(DeviceDescription_Kind)                                  \
  FREE(DeviceDescription_DebugString) NEED(DeviceDescription_ToString)                             \
  NEED(Device_GetDescription) FREE(Device_IsAddressable) FREE(Device_LocalHardwareId)              \
  FREE(Device_AddressableMemories) FREE(Device_DefaultMemory) MAYBE(Device_MemoryStats)            \
  FREE(Memory_Id) FREE(Memory_Kind) FREE(Memory_DebugString) FREE(Memory_ToString)                 \
  FREE(Memory_AddressableByDevices)                                                                \
  NEED(Executable_Destroy) FREE(Executable_Name) FREE(Executable_NumReplicas)                      \
  FREE(Executable_NumPartitions) NEED(Executable_NumOutputs)                                       \
  FREE(Executable_SizeOfGeneratedCodeInBytes) MAYBE(Executable_GetCostAnalysis)                    \
  FREE(Executable_OutputMemoryKinds) MAYBE(Executable_OptimizedProgram)                            \
  MAYBE(Executable_Serialize)                                                                      \
  NEED(LoadedExecutable_Destroy) NEED(LoadedExecutable_GetExecutable)                              \
  MAYBE(LoadedExecutable_AddressableDevices) FREE(LoadedExecutable_Delete)                         \
  FREE(LoadedExecutable_IsDeleted) NEED(LoadedExecutable_Execute)                                  \
  MAYBE(Executable_DeserializeAndLoad)                                                             \
  FREE(LoadedExecutable_Fingerprint)                                                               \
  NEED(Buffer_Destroy) FREE(Buffer_ElementType) FREE(Buffer_Dimensions)                            \
  FREE(Buffer_UnpaddedDimensions) FREE(Buffer_DynamicDimensionIndices)                             \
  FREE(Buffer_GetMemoryLayout) NEED(Buffer_OnDeviceSizeInBytes) FREE(Buffer_Device)                \
  FREE(Buffer_Memory) FREE(Buffer_Delete) MAYBE(Buffer_IsDeleted) NEED(Buffer_CopyToDevice)        \
  NEED(Buffer_ToHostBuffer) FREE(Buffer_IsOnCpu) NEED(Buffer_ReadyEvent)                           \
  MAYBE(Buffer_UnsafePointer) FREE(Buffer_IncreaseExternalReferenceCount)                          \
  FREE(Buffer_DecreaseExternalReferenceCount) FREE(Buffer_OpaqueDeviceMemoryDataPointer)           \
  FREE(CopyToDeviceStream_Destroy) FREE(CopyToDeviceStream_AddChunk)                               \
  FREE(CopyToDeviceStream_TotalBytes) FREE(CopyToDeviceStream_GranuleSize)                         \
  FREE(CopyToDeviceStream_CurrentBytes)                                                            \
  MAYBE(TopologyDescription_Create) MAYBE(TopologyDescription_Destroy)                             \
  FREE(TopologyDescription_PlatformName) FREE(TopologyDescription_PlatformVersion)                 \
  MAYBE(TopologyDescription_GetDeviceDescriptions) FREE(TopologyDescription_Serialize)             \
  FREE(TopologyDescription_Attributes)                                                             \
  MAYBE(Compile)                                                                                   \
  FREE(Executable_OutputElementTypes) FREE(Executable_OutputDimensions) FREE(Buffer_CopyToMemory)  \
  FREE(Client_CreateViewOfDeviceBuffer) FREE(Executable_Fingerprint)                               \
  FREE(Client_TopologyDescription) MAYBE(Executable_GetCompiledMemoryStats) FREE(Memory_Kind_Id)   \
  FREE(ExecuteContext_Create) FREE(ExecuteContext_Destroy) FREE(Buffer_CopyRawToHost)              \
  FREE(AsyncHostToDeviceTransferManager_Destroy)                                                   \
  FREE(AsyncHostToDeviceTransferManager_TransferData)                                              \
  FREE(Client_CreateBuffersForAsyncHostToDevice)                                                   \
  FREE(AsyncHostToDeviceTransferManager_RetrieveBuffer)                                            \
  FREE(AsyncHostToDeviceTransferManager_Device)                                                    \
  FREE(AsyncHostToDeviceTransferManager_BufferCount)                                               \
  FREE(AsyncHostToDeviceTransferManager_BufferSize)                                                \
  FREE(AsyncHostToDeviceTransferManager_SetBufferError)                                            \
  FREE(AsyncHostToDeviceTransferManager_AddMetadata) FREE(Client_DmaMap) FREE(Client_DmaUnmap)     \
  MAYBE(Client_CreateUninitializedBuffer) FREE(Client_UpdateGlobalProcessInfo)                     \
  FREE(TopologyDescription_Deserialize) FREE(Client_CreateAliasBuffer)                             \
  FREE(Client_FulfillAliasBuffer) FREE(LoadedExecutable_GetDeviceAssignment)                       \
  FREE(Client_CreateErrorBuffer) FREE(AsyncHostToDeviceTransferManager_TransferLiteral)            \
  FREE(Buffer_CopyRawToHostFuture) FREE(Device_PoisonExecution)                                    \
  FREE(Device_CreateAsyncTrackingEvent) FREE(AsyncTrackingEvent_Destroy)                           \
  FREE(Executable_GetCompileOptions) FREE(Buffer_DonateWithControlDependency) FREE(Event_Create)   \
  FREE(Event_Set) FREE(Device_GetAttributes) FREE(Client_Load)                                     \
  FREE(LoadedExecutable_AddressableDeviceLogicalIds) FREE(Buffer_Bitcast)                          \
  FREE(Error_ForEachPayload) FREE(TopologyDescription_Fingerprint)                                 \
  FREE(Executable_ParameterMemoryKinds) FREE(Device_ClearMemoryStats)                              \
  FREE(TopologyDescription_MakeCanonicalShapeForMemorySpace)                                       \
  FREE(TopologyDescription_GetMemorySpaceKindIds)

/* clang-format on */

typedef struct PJRT_Extension_Base {
  size_t struct_size;
  int type;
  struct PJRT_Extension_Base *next;
} PJRT_Extension_Base;

/* For this list and the one of ffi_abi.h. */
#define TT_ABI_FIELD(type, name) type name;
#define TT_ABI_STRUCT(name, last, fields)                                                          \
  typedef struct name {                                                                            \
    size_t struct_size;                                                                            \
    PJRT_Extension_Base *extension_start;                                                          \
    fields                                                                                         \
  } name;                                                                                          \
  enum { name##_STRUCT_SIZE = offsetof(name, last) + sizeof(((name *)0)->last) };
TT_PJRT_STRUCTS(TT_ABI_STRUCT, TT_ABI_FIELD)

typedef struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  PJRT_Api_Version pjrt_api_version;
#define TT_PJRT_CALL(name) PJRT_Error *(*PJRT_##name)(PJRT_##name##_Args * args);
#define TT_PJRT_VOID(name) void (*PJRT_##name)(PJRT_##name##_Args * args);
#define TT_PJRT_FREE(name) void *PJRT_##name;
  TT_PJRT_SLOTS(TT_PJRT_CALL, TT_PJRT_CALL, TT_PJRT_FREE, TT_PJRT_VOID)
#undef TT_PJRT_CALL
#undef TT_PJRT_VOID
#undef TT_PJRT_FREE
} PJRT_Api;

#endif
