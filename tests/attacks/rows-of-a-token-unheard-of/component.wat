;; Makes rows of a token that the model does not have.
;; 272: the token; 280: the shape [1, 1].
(data (i32.const 272) "\e7\03\00\00")
(data (i32.const 280) "\01\00\00\00\01\00\00\00")
(func $step (param i32) (result i32)
  (local $ids i32) (local $mask i32)
  (call $tensor/from-indices (i32.const 272) (i32.const 1) (i32.const 280) (i32.const 2) (i32.const 64))
  (local.set $ids (call $handle))
  (call $tensor/full (i32.const 280) (i32.const 2) (f32.const 1) (i32.const 64))
  (local.set $mask (call $handle))
  (call $data/make-rows (local.get $ids) (local.get $mask) (local.get $mask) (i32.const 64))
  (call $pass-on))
