;; Lets the model sample one token, named as often as its memory holds it.
(func $step (param i32) (result i32)
  (call $sample/sampler.allow-tokens (call $sample/sampler.new) (i32.const 8192) (i32.const 40000) (i32.const 64))
  (call $pass-on))
