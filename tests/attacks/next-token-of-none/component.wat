;; Asks for no token at all.
;; 256: the side; 272: a layer and a token that are not there.
(data (i32.const 256) "example")
(data (i32.const 272) "\e7\03\00\00")
(func $examples (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $handle))
(func $step (param $batch i32) (result i32)
  (call $model/next-token (call $model/policy) (call $examples (local.get $batch)) (i32.const 272) (i32.const 0) (i32.const 64))
  (call $pass-on))
