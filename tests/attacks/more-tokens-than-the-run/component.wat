;; Lets a completion be longer than the run allows.
(func $step (param i32) (result i32)
  (call $sample/sampler.max-tokens (call $sample/sampler.new) (i32.const 9) (i32.const 64))
  (call $pass-on))
