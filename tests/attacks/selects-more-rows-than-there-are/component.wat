;; Selects the first row three times, of two, to grow what two rows hold.
;; 256: the side; 1024: three zeros, as memory begins.
(data (i32.const 256) "example")
(func $step (param $batch i32) (result i32)
  (call $data/batch.rows (local.get $batch) (i32.const 256) (i32.const 7) (i32.const 64))
  (call $data/rows.select (call $handle) (i32.const 1024) (i32.const 3) (i32.const 64))
  (call $pass-on))
