;; Makes patches until something stops it.
;; 256: a shape [3]; 272: layers 0 0 1 2 4.
(data (i32.const 256) "\03\00\00\00")
(data (i32.const 272) "\00\00\00\00\00\00\00\00\01\00\00\00\02\00\00\00\04\00\00\00")
(func $vector (result i32)
  (call $tensor/ones (i32.const 256) (i32.const 1) (i32.const 5) (i32.const 64))
  (call $handle))
(func $step (param i32) (result i32)
  (local $vector i32) (local $other i32)
  (local.set $vector (call $vector))
  (loop $more
    (call $patch/add (i32.const 272) (i32.const 1) (i32.const 0) (local.get $vector) (f32.const 1) (i32.const 0) (i32.const 64))
    (br_if $more (i32.eqz (i32.load8_u (i32.const 64)))))
  (call $pass-on))
