;; Selects a row that is not there.
;; 256: the side; 272: the numbers 1 and 4,294,967,295.
(data (i32.const 256) "example")
(data (i32.const 272) "\01\00\00\00\ff\ff\ff\ff")
(func $step (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $data/rows.select (call $handle) (i32.const 272) (i32.const 2) (i32.const 64))
  (call $pass-on))
