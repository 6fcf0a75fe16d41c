// A CUDA without kernels for a CPU build of torch: devices, streams and events exist and do nothing.
// What is computed on them is device.py's business. ENCODERY_PRETEND_DEVICES says how many there are.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstdlib>

namespace {
c10::DeviceIndex devices() {
  const char* count = std::getenv("ENCODERY_PRETEND_DEVICES");
  return static_cast<c10::DeviceIndex>(count ? std::atoi(count) : 1);
}

thread_local c10::DeviceIndex current = 0;

struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  static c10::Device here() { return {c10::DeviceType::CUDA, current}; }
  static c10::Stream on(c10::Device device) {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : here());
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = here();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return here(); }
  void setDevice(c10::Device device) const override { if (device.has_index()) current = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::Stream getStream(c10::Device device) const noexcept override { return on(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return on(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return on(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return on(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override { return devices(); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}  // namespace

namespace at {
struct CUDAHooks : CUDAHooksInterface {  // torch looks it up by this name
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return devices() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return devices(); }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex current_device() const override { return current; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
