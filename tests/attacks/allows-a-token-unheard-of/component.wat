;; Lets the model sample a token that it does not have.
(data (i32.const 272) "\e7\03\00\00")
(func $step (param i32) (result i32)
  (call $sample/sampler.allow-tokens (call $sample/sampler.new) (i32.const 272) (i32.const 1) (i32.const 64))
  (call $pass-on))
