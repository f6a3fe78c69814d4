package triton

import (
	"encoding/json"
	"net/url"
)

// RegisterRequest returns the message inference.CudaSharedMemoryRegisterRequest, for the method
// CudaSharedMemoryRegister. Its response has no fields.
func (r *Region) RegisterRequest() []byte {
	b := putBytes(nil, 1, r.name)
	b = putBytes(b, 2, r.handle[:])
	b = putInt(b, 3, r.deviceID)
	return putInt(b, 4, r.byteSize)
}

// UnregisterRequest returns the message inference.CudaSharedMemoryUnregisterRequest, for the method
// CudaSharedMemoryUnregister, or CudaSharedMemoryStatusRequest, which is the same, for CudaSharedMemoryStatus.
func (r *Region) UnregisterRequest() []byte { return putBytes(nil, 1, r.name) }

// RegisterJSON returns the path and the body of the HTTP request (POST) that registers the region.
func (r *Region) RegisterJSON() (path string, body []byte) {
	type handle struct {
		B64 []byte `json:"b64"` // JSON has bytes in base64
	}
	body, err := json.Marshal(struct {
		RawHandle handle `json:"raw_handle"`
		DeviceID  int64  `json:"device_id"`
		ByteSize  int64  `json:"byte_size"`
	}{handle{r.handle[:]}, r.deviceID, r.byteSize})
	if err != nil {
		panic(err) // bytes and numbers always become JSON
	}
	return r.path() + "/register", body
}

// UnregisterPath returns the path of the HTTP request (POST, without a body) that unregisters the region.
func (r *Region) UnregisterPath() string { return r.path() + "/unregister" }

func (r *Region) path() string { return "v2/cudasharedmemory/region/" + url.PathEscape(r.name) }
