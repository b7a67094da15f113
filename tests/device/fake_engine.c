/* fake_engine.c: a test that links this has the fake driver and compiler in its engine, whose tables it fills in. The
   engine also splits the work of tiny models into tasks, and that of tiny models on a slow GPU (fake.devices) into
   units.
   takes: engine_rig; machine_tables; fake_sleep, during which the fake device works; fake_clock.
   gives: nothing; it works before main. */
#include "fake_driver.h"

static void __attribute__((constructor)) make_fake(void)
{
    engine_rig.task_cost = 1;
    engine_rig.unit_ns = 10000;
    engine_rig.part_rows = 8;
    engine_rig.sleep = fake_sleep;
    engine_rig.clock = fake_clock;
    engine_rig.tables = machine_tables;
}
