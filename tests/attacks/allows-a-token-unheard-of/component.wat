;; Lets the model sample a token that it does not have.
(import "tunebox:method/sample@0.2.0" "[constructor]sampler" (func $sampler (result i32)))
(import "tunebox:method/sample@0.2.0" "[method]sampler.allow-tokens" (func $allow (param i32 i32 i32 i32)))
(data (i32.const 272) "\e7\03\00\00")
(func $step (param i32) (result i32)
  (call $allow (call $sampler) (i32.const 272) (i32.const 1) (i32.const 64))
  (call $pass-on))
