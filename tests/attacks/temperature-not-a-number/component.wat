;; Divides logits by something that is no number.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.temperature" (func $temperature (param i32 f32 i32)))
(func $step (param i32) (result i32)
  (call $temperature (call $sampler) (f32.const nan) (i32.const 64))
  (call $pass-on))
