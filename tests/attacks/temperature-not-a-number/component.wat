;; Divides logits by something that is no number.
(func $step (param i32) (result i32)
  (call $sample/sampler.temperature (call $sample/sampler.new) (f32.const nan) (i32.const 64))
  (call $pass-on))
